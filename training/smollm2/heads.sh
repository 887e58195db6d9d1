#!/usr/bin/env bash
# Makes the heads that come with the built-in drafters for smollm2, from nothing but the model: its own chats, then what
# each drafter learns from them. Goes on where it was broken off. SCALE shrinks everything in proportion.
set -euo pipefail
cd "$(dirname "$0")"
outrider=${OUTRIDER:-outrider}
out=${OUT:-build}
scale=${SCALE:-1}
scaled() { awk -v s="$scale" -v n="$1" -v least="$2" 'BEGIN { v = int(n * s); print (v < least ? least : v) }'; }

mkdir -p "$out"
small=$(awk -v s="$scale" 'BEGIN { print (s < 0.1) }')
length=768 rows=80
if [ "$small" = 1 ]; then length=160 rows=48; fi

# Two files, so that two processes can make them at once: FILE SEED TOKENS.
chats() {
    "$outrider" data synthesize -m smollm2 --out "$out/$1" --openings openings.txt --seed "$2" --tokens "$(scaled "$3" 600)" \
        --batch-size "$rows" --max-tokens "$length" --turns 8
}
chats chats-0.jsonl 10 300000
chats chats-1.jsonl 11 225000

learn() { # DRAFTER OUT EPOCHS OPTIONS...
    drafter=$1 folder=$2 epochs=$3
    shift 3
    "$outrider" train "$drafter" -m smollm2 --data "$out/chats-0.jsonl" --data "$out/chats-1.jsonl" --max-tokens 768 \
        --states "$out/states" --batch-tokens 1024 --accumulate 1 --prompts "$(scaled 8 1)" --out "$out/$folder" \
        --epochs "$(scaled "$epochs" 1)" "$@"
}
# A first pass that learns the next token alone costs a third, and leaves the later steps little to learn.
learn eagle3 eagle3-first 4 --rate 1e-3 -o draft_vocab=8192 -o steps=1
learn eagle3 eagle3 3 --rate 5e-4 -o steps=3 --from "$out/eagle3-first"
learn medusa medusa 4 --rate 1e-3 -o draft_vocab=8192 -o heads=4 -o layers=2
learn draft-model draft-model 4 --rate 5e-4
