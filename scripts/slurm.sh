#!/bin/bash
# Run a command of terrain_gpu in a SLURM job: a Dask scheduler, a worker in every task, and the command.
#
#   sbatch --ntasks=16 --mem-per-cpu=2GB --time=04:00:00 scripts/slurm.sh \
#       compute-mst dem.zarr --memory-limit 1GB --resume --json report.json
#
# Leave half of the memory of each CPU to the scheduler, to the command and to what runs beside them. The job ends with
# the exit code of the command. If the time limit ended it, submit it again: --resume continues.
#SBATCH --cpus-per-task=1

# Messages to each worker that the scheduler keeps in memory; by default 1000.
export DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH=10
scheduler="$(hostname):$((20000 + SLURM_JOB_ID % 20000))"
trap 'kill $(jobs -p)' EXIT
dask scheduler --port "${scheduler#*:}" &
# A worker that dies must not end the others, whatever the site's default is.
srun --overlap --kill-on-bad-exit=0 dask worker "$scheduler" --nthreads 1 --no-nanny --memory-limit 0 &
"$@" --scheduler "$scheduler"
