#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=1
#SBATCH --requeue
# A sweep by as many tasks as the job has, on as many nodes as it takes:
#     sbatch slurm_job.sh DUMP OUT
# Task i does the shards i, i + N, …; a job that was killed, or one of another size, goes on.
# On GPUs: `#SBATCH --gpus-per-task=1`, and `--device cuda` below.
set -e
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
srun fastattnerase sweep "$1" --out "$2" --engine ranks
