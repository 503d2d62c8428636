#!/usr/bin/env bash
# Makes the two pictures of docs/SCHEDULE.md: a training step with an event pair per direction and
# with one shared event, traced while it ran; and holds the traces to what the pictures show. On a
# GPU if there is one, else on the CPU with two ranks.
#   ./scripts/trace_pictures.sh [OVERRIDE...]      section.key=value, stronger than what is below
# They go to runs/pictures, or to OUT; those of docs/img were made on an H200.
#   TANDEM=build-gpu/tandem OUT=docs/img NODE="dispatch_fwd L1 mb3" ./scripts/trace_pictures.sh ...
# The model should have an attention forward, an all-to-all and an experts' backward of about equal
# length: tandem trace prints them, and train.alltoall_delay_us sets the second.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

overrides "$@"
tandem="${TANDEM:-}"
for candidate in "$root/build-gpu/tandem" "$root/build/tandem"; do
  [ -n "$tandem" ] || [ ! -x "$candidate" ] || tandem="$candidate"
done
[ -n "$tandem" ] || fail "build first (./scripts/run.sh), or say TANDEM=path/to/tandem"
[ -f "$tandem" ] && [ -x "$tandem" ] || fail "TANDEM=$tandem: there is no such program"
out="${OUT:-$root/runs/pictures}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

common=(train.steps=5 train.micro_batch=1 parallel.pp=1 model.layers=4 model.topk=2
        logging.trace_begin=4 logging.trace_steps=1)
if [ "$(gpus)" -gt 0 ]; then
  run=("$tandem" train "$root/configs/smoke.json")
  # Rows are copied by multiprocessors, so the experts' products leave some of an H200's 132 free.
  model=(train.device=cuda train.dtype=bf16 train.compute_sms=116 parallel.dp=1 parallel.ep=1
         model.hidden=2048 model.heads=16 model.kv_heads=4 model.head_dim=128 model.experts=8
         model.moe_ffn=4096 train.seq_len=16384 train.global_batch=6 train.alltoall_delay_us=2500)
else
  run=("$tandem" train "$root/configs/smoke.json" --ranks 2)
  model=(train.device=cpu train.cpu_threads=1 parallel.dp=2 parallel.ep=2 model.hidden=128
         model.heads=4 model.kv_heads=4 model.head_dim=32 model.experts=4 model.moe_ffn=384
         train.seq_len=768 train.global_batch=12 train.alltoall_delay_us=6000)
fi

# picture NAME EVENTS OVERRIDE...: trains, draws $out/overlap_NAME.svg, leaves the ratio in $ratio.
picture() {
  local name="$1" events="$2"; shift 2
  "${run[@]}" "${common[@]}" "${model[@]}" "overlap.events=$events" "logging.trace=$work/$name" "$@" \
    >"$work/$name.log" 2>&1 || { cat "$work/$name.log" >&2; fail "the $name run failed"; }
  say "$name"
  local lines node
  lines="$(python3 "$root/scripts/dispatch_gap.py" "$work/$name"-rank*.json)"
  node="${NODE:-$(sed -n 's/^clearest: //p' <<<"$lines")}"
  [ -n "$node" ] || fail "rank 0 has no pair to show: say NODE=\"dispatch_fwd L1 mb3\""
  "$tandem" trace "$work/$name-rank0.json" --around "$node" --svg "$out/overlap_$name.svg"
  printf '%s: %s\n' "$name" "$lines"
  ratio="${lines##* }"
}
# holds CONDITION: of numbers.
holds() { awk "BEGIN { exit !($1) }"; }

picture pair per_direction "$@"; pair="$ratio"
picture shared shared "$@"; shared="$ratio"
say "wait before dispatch_fwd, in experts_bwd_input: $pair with an event pair, $shared shared"
holds "$pair < 0.25" || fail "with an event pair the dispatch should start at once: ratio $pair"
holds "$shared > 0.6 && $shared < 2" ||
  fail "with a shared event the dispatch should wait for experts_bwd_input: ratio $shared"
