#!/usr/bin/env bash
# Scores and measures of other libraries, each in an environment of its own, as their releases want
# others beside them than this package does. Needs python3.11, as ferret's resolve there.
#
#   bash benchmarks/peers.sh OUT ferret MODEL TEXTS [OPTIONS]  OUT/ferret.json, of a classifier
#   bash benchmarks/peers.sh OUT inseq MODEL TEXTS [OPTIONS]   OUT/inseq.json, of a model that generates
#
# MODEL is a folder, TEXTS a file of JSON lines; peers_ferret.py and peers_inseq.py say which fields a
# line has, and take OPTIONS. An environment is made once, in ENVIRONMENTS (build/peers), some minutes
# each. Variables: PYTHON (python3.11), INDEX (options of pip that find torch's CPU wheel).
set -euo pipefail

case ${1:-} in
  -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
if [ $# -lt 4 ]; then
  echo "peers.sh: given $# arguments, needed OUT, ferret or inseq, MODEL and TEXTS; see --help" >&2
  exit 64
fi
out=$1 library=$2 model=$3 texts=$4
shift 4
root=$(cd "$(dirname "$0")/.." && pwd)
case $library in
  # Newer releases of pyarrow need numpy 2.
  ferret) packages=("ferret-xai==0.4.2" "numpy<2" "captum<0.8" "datasets<3" "transformers<5" "pyarrow<20") ;;
  inseq) packages=("inseq==0.7.*") ;;
  *) echo "library: given $library, needed ferret or inseq" >&2; exit 64 ;;
esac
environment=${ENVIRONMENTS:-$root/build/peers}/$library
if [ ! -e "$environment/.made" ]; then
  "${PYTHON:-python3.11}" -m venv "$environment"
  # shellcheck disable=SC2086  # INDEX may be several options
  "$environment/bin/python" -m pip install -q --prefer-binary ${INDEX:-} torch "${packages[@]}"
  touch "$environment/.made"
fi
# Nothing is asked of a hub: models are folders.
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
"$environment/bin/python" "$root/benchmarks/peers_$library.py" "$model" "$texts" "$out/$library.json" "$@"
echo "$out/$library.json"
