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

# Two halves, so that two processes can make them at once.
for half in 0 1; do
    "$outrider" data synthesize -m smollm2 --out "$out/chats-$half.jsonl" --openings openings.txt --seed "1$half" \
        --tokens "$(scaled 500000 600)" --batch-size "$rows" --max-tokens "$length" --turns 8
done
data=(--data "$out/chats-0.jsonl" --data "$out/chats-1.jsonl" --max-tokens 768 --states "$out/states")
common=(-m smollm2 "${data[@]}" --batch-tokens 1536 --accumulate 1 --prompts "$(scaled 8 1)")

"$outrider" train eagle3 "${common[@]}" --out "$out/eagle3" --epochs "$(scaled 6 1)" --rate 8e-4 -o draft_vocab=8192 -o steps=4
"$outrider" train medusa "${common[@]}" --out "$out/medusa" --epochs "$(scaled 6 1)" --rate 1e-3 -o draft_vocab=8192 -o heads=4 -o layers=2
"$outrider" train draft-model "${common[@]}" --out "$out/draft-model" --epochs "$(scaled 6 1)" --rate 5e-4
