"""The target that the flags and a config file name together."""

from dataclasses import dataclass

from outrider.config import Config
from outrider.errors import InputError
from outrider.ranks import launched
from outrider.target.load import load
from outrider.target.model import Target


@dataclass(frozen=True, slots=True)
class Named:
    """A target that is not loaded yet.

    Args:
        model: the embedded default's name, a folder or a Hub id.
        dtype: see `outrider.load`, as all that follows.
        device: see there.
        device_map: see there.
        revision: see there.
        trust_remote_code: see there.
    """

    model: str
    dtype: str | None
    device: str | None
    device_map: str | None
    revision: str | None
    trust_remote_code: bool

    @classmethod
    def of(
        cls,
        file: Config,
        model: str | None,
        *,
        dtype: str | None,
        device: str | None,
        device_map: str | None,
        revision: str | None,
        trust_remote_code: bool,
    ) -> "Named":
        """Take what the flags say, and of a config file what they leave open.

        Raises:
            InputError: neither names a model.
        """
        name = model or file.target.model
        if name is None:
            raise InputError("which model? -m smollm2, a folder, or a Hub id")
        device = device or (None if device_map else file.target.device)
        return cls(name, dtype or file.target.dtype, device, device_map, revision, trust_remote_code)

    def load(self) -> Target:
        """Load it, spread over the processes of a launch where there is one."""
        return load(
            self.model,
            dtype=self.dtype,
            device=self.device,
            device_map=self.device_map,
            tensor_parallel=launched(),
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
        )
