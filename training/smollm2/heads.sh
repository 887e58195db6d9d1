#!/usr/bin/env bash
# Makes the heads that come with the built-in drafters for smollm2, from nothing but the model: its own chats and answers,
# then what each drafter learns from them. Goes on where it was broken off. SCALE shrinks everything in proportion.
set -euo pipefail
cd "$(dirname "$0")"
outrider=${OUTRIDER:-outrider}
python=${PYTHON:-python3}
out=${OUT:-build}
scale=${SCALE:-1}
scaled() { awk -v s="$scale" -v n="$1" -v least="$2" 'BEGIN { v = int(n * s); print (v < least ? least : v) }'; }

mkdir -p "$out"
small=$(awk -v s="$scale" 'BEGIN { print (s < 0.1) }')
length=768 task=900 answer=512 rows=80
if [ "$small" = 1 ]; then length=160 task=600 answer=96 rows=12; fi

chats() { # FILE SEED TOKENS: both sides of chats are the model's own.
    "$outrider" data synthesize -m smollm2 --out "$out/$1" --openings openings.txt --seed "$2" --tokens "$(scaled "$3" 400)" \
        --batch-size "$rows" --max-tokens "$length" --turns 8
}
answers() { # FILE SEED PROMPTS: answers to prompts.
    "$outrider" data synthesize -m smollm2 --out "$out/$1" --prompts "$3" --seed "$2" --batch-size "$rows" --max-tokens "$task" \
        --max-answer "$answer"
}
asked() { # KIND SEED COUNT FROM: prompts.
    "$python" tasks.py "$1" "$2" "$(scaled "$3" 12)" "$4"
}
chats chats-0.jsonl 10 138000
chats chats-1.jsonl 11 128000
chats chats-2.jsonl 12 32000
chats chats-3.jsonl 13 99000
chats chats-4.jsonl 14 32500
asked topics 1 320 topics.txt > "$out/topics.jsonl"
answers answers-0.jsonl 20 "$out/topics.jsonl"
asked texts 2 240 "$out/answers-0.jsonl" > "$out/texts.jsonl"
answers answers-1.jsonl 21 "$out/texts.jsonl"
asked topics 3 400 more-topics.txt > "$out/more-topics.jsonl"
answers answers-2.jsonl 22 "$out/more-topics.jsonl"
# A second process began further on in the same requests.
"$python" tasks.py topics 3 1280 more-topics.txt | tail -n "$(scaled 80 12)" > "$out/later-topics.jsonl"
answers answers-3.jsonl 23 "$out/later-topics.jsonl"
asked sentences 5 240 "$out/answers-0.jsonl" > "$out/sentences.jsonl"
answers answers-4.jsonl 24 "$out/sentences.jsonl"
asked german 6 240 "$out/answers-4.jsonl" > "$out/german.jsonl"
answers answers-5.jsonl 25 "$out/german.jsonl"

learn() { # DRAFTER OUT EPOCHS FILES OPTIONS...
    drafter=$1 folder=$2 epochs=$3 data=()
    for name in $4; do data+=(--data "$out/$name.jsonl"); done
    shift 4
    "$outrider" train "$drafter" -m smollm2 "${data[@]}" --max-tokens 768 --states "$out/states" --batch-tokens 1024 \
        --accumulate 1 --prompts "$(scaled 8 1)" --out "$out/$folder" --epochs "$(scaled "$epochs" 1)" "$@"
}
first="chats-0 chats-1"
second="chats-2 chats-3"
chats="$first $second chats-4"
answers="answers-0 answers-1"
more="answers-2 answers-3 answers-4 answers-5"
# A first pass that learns the next token alone costs a third, and leaves the later steps little to learn.
learn eagle3 eagle3-1 4 "$first" --rate 1e-3 -o draft_vocab=8192 -o steps=1
learn eagle3 eagle3-2 1 "$first" --rate 5e-4 -o steps=3 --from "$out/eagle3-1"
learn eagle3 eagle3-3 2 "$second" --rate 5e-4 -o steps=3 --from "$out/eagle3-2"
learn eagle3 eagle3-4 1 "$chats" --rate 5e-4 -o steps=3 -o draft_vocab=16384 --from "$out/eagle3-3"
learn eagle3 eagle3-5 2 "$answers" --rate 5e-4 -o steps=3 --from "$out/eagle3-4"
learn eagle3 eagle3 2 "$more" --rate 5e-4 -o steps=3 --from "$out/eagle3-5"
learn medusa medusa-1 4 "$first" --rate 1e-3 -o draft_vocab=8192 -o heads=4 -o layers=2
learn medusa medusa-2 3 "$second" --rate 7e-4 -o heads=4 -o layers=2 --from "$out/medusa-1"
learn medusa medusa-3 2 "$answers" --rate 7e-4 -o heads=4 -o layers=2 --from "$out/medusa-2"
learn medusa medusa 1 "$answers $more" --rate 7e-4 -o heads=4 -o layers=2 -o draft_vocab=16384 --from "$out/medusa-3"
learn draft-model draft-model-1 2 "$first" --rate 8e-4 -o "layers=[0,1,29]"
learn draft-model draft-model-2 2 "$second" --rate 8e-4 --from "$out/draft-model-1"
learn draft-model draft-model-3 1 "$chats $answers" --rate 8e-4 --from "$out/draft-model-2"
learn draft-model draft-model 2 "$more" --rate 8e-4 --from "$out/draft-model-3"
