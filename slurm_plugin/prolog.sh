#!/bin/sh
# PrologSlurmctld: a job of the partition starts only on the hosts of its own allocation, once the
# service has confirmed the routes. Call it from a prolog of the site with the same environment.
exec "${LAAS_SLURM:-/opt/laas/bin/laas-slurm}" prolog \
    --config-file "${LAAS_CONF:-/etc/laas/laas-slurm.conf}"
