"""The door for drafters: hook, guarded loader, registry."""
