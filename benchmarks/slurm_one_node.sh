#!/bin/bash
# A Slurm cluster of this one machine: runs slurm_job.sh with two tasks on a small dump, compares its
# tables with those of one process, and stops the cluster.
#
#     bash benchmarks/slurm_one_node.sh [DUMP]
#
# Wants root, Debian's slurm-wlm and munge (`apt-get install slurm-wlm munge`), and `fastattnerase` on
# PATH. Without DUMP one of 2,000 instances is made up. Nothing of the machine's own Slurm or
# munge is touched: keys, sockets, ports and states are in a temporary folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for program in munged slurmctld slurmd sbatch fastattnerase; do
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || { echo "$program: not installed"; exit 1; }
done
export PATH=$PATH:/usr/sbin
work=$(mktemp -d)
chmod 755 "$work"
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for _ in $(seq 20); do # until the last has ended
    kill -0 "${pids[@]}" 2>/dev/null || break
    sleep 0.5
  done
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap stop EXIT

# --- the cluster ---------------------------------------------------------------------------------
mkdir -m 700 "$work/munge"
mkdir -m 755 "$work/socket"
head -c 1024 /dev/urandom >"$work/munge/key"
chmod 600 "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/socket/munge" \
  --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" \
  >"$work/munged.out" 2>&1 &
pids+=($!)
node=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$work/socket/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(getconf _NPROCESSORS_ONLN) State=UNKNOWN
PartitionName=main Nodes=$node Default=YES MaxTime=INFINITE State=UP
CONF
mkdir "$work/state" "$work/spool"
export SLURM_CONF=$work/slurm.conf
slurmctld -D >"$work/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D >"$work/slurmd.log" 2>&1 &
pids+=($!)
for _ in $(seq 60); do
  [ "$(sinfo --noheader --format=%T 2>/dev/null || true)" = idle ] && break
  sleep 0.5
done
if [ "$(sinfo --noheader --format=%T || true)" != idle ]; then
  tail -n 20 "$work"/*.log
  exit 1
fi

# --- the worked example --------------------------------------------------------------------------
dump=${1:-$work/values}
[ -e "$dump/manifest.json" ] ||
  python "$here/scale.py" --make --items 400000 --shard-bytes 5000000 --folder "$work"
cd "$work"
sbatch --wait --output="$work/job.log" "$here/slurm_job.sh" "$dump" "$work/slurm" >/dev/null || {
  cat "$work/job.log"
  exit 1
}
fastattnerase sweep "$dump" --out "$work/one" >/dev/null 2>&1
for part in parts shards manifest.json aggregate/result.json aggregate/tables; do
  diff -r "$work/one/$part" "$work/slurm/$part"
done
echo "Slurm, two tasks: the same parts, records and tables as one process, byte for byte"
