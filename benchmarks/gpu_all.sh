#!/usr/bin/env bash
# All that a GPU must say, in one command of at most nine minutes, on a machine that needs no network (docs/machines.md):
#
#     OUT=measured benchmarks/gpu_all.sh                            # on a GPU
#     OUT=measured benchmarks/gpu_all.sh --small                    # tries all of it on a CPU, in five minutes on two cores
#     OUT=measured LIMIT=240 benchmarks/gpu_all.sh families step    # some parts, in so many seconds
#
# A part is a process with a share of the time that is left. When its share is over it is killed, with all that it has started. What it
# does not need goes to later parts. benchmarks/gpu_parts.py says what the parts are. Each writes $OUT/PART.json after each finding, what
# it says is in $OUT/log.txt, and the end writes $OUT/gpu.md. The folder CARRIED, build/gpu, has what the machine lacks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
declare -A shares=([train]=170 [speed]=95 [families]=90 [step]=65 [large]=80 [same]=40)
small=() limit=525
if [[ ${1-} == --small ]]; then small=(--small) limit=280 && shift; fi
limit=${LIMIT:-$limit} carried=${CARRIED:-build/gpu} python=${PYTHON:-python3}
parts=("$@")
[[ $# == 0 ]] && parts=(train speed families step large same)
for part in "${parts[@]}"; do
    [[ -v "shares[$part]" ]] || { echo "error: $part: no such part; the parts are ${!shares[*]}" >&2; exit 2; }
done
[[ ${#small[@]} -gt 0 || -f $carried/data.tar.xz ]] ||
    { echo "error: $carried/data.tar.xz is not there: docs/machines.md says how to make it, or give --small" >&2; exit 2; }
mkdir -p "${OUT:=measured}" && out=$(realpath "$OUT") || exit
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$work/packages:$PWD${PYTHONPATH:+:$PYTHONPATH}
unset OUT

"$python" -c 'import pydantic' 2>/dev/null || "$python" -m pip install --quiet --no-index --no-deps --no-compile \
    --no-cache-dir --disable-pip-version-check --target "$work/packages" "$carried"/wheels/*.whl || exit
[[ ${#small[@]} -gt 0 ]] || "$python" -m tarfile -e "$carried/data.tar.xz" "$work" || exit
echo "ready after $SECONDS s"

rest=0
for part in "${parts[@]}"; do rest=$((rest + shares[$part])); done
for part in "${parts[@]}"; do
    seconds=$(((limit - SECONDS) * shares[$part] / rest)) began=$SECONDS
    rest=$((rest - shares[$part]))
    timeout --signal=KILL "$seconds" "$python" benchmarks/gpu_parts.py "$part" "${small[@]}" --out "$out" --work "$work" \
        --seconds "$seconds" >>"$out/log.txt" 2>&1
    echo "$part: status $?, $((SECONDS - began)) of $seconds s" | tee -a "$out/log.txt"
done
rm -f "$out"/*.new  # of a part that was killed while it wrote
"$python" benchmarks/gpu_page.py "$out" --out "$out/gpu.md" && cat "$out/gpu.md"
