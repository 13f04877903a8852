# SPDX-License-Identifier: Apache-2.0

"""``python -m tests.stack.computes --config-file NOVA.CONF HOST ...``: many nova-computes.

Runs ``nova-compute`` for many hosts in one process: for each host a service on the bus, with
Nova's fake hypervisor. Ends on SIGTERM.
"""

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import functools
import signal
import sys
import threading

import nova.conf
import nova.db.main.api
from nova import config, objects, service, utils
from nova.compute import rpcapi
from nova.conductor import rpcapi as conductor_rpcapi
from nova.objects import base as objects_base
from nova.virt import fake
from oslo_log import log as logging

CONF = nova.conf.CONF

VCPUS, MEMORY_MB, DISK_GB = 10, 8192, 1028
"""Resources of each host; Nova reserves 512 MB of the memory."""


def main() -> None:
    options, hosts = sys.argv[:3], sys.argv[3:]
    config.parse_args(options)
    logging.setup(CONF, "nova")
    objects.register_all()
    nova.db.main.api.DISABLE_DB_ACCESS = True
    objects_base.NovaObject.indirection_api = conductor_rpcapi.ConductorAPI()
    objects.Service.enable_min_version_cache()
    utils._get_auth_and_session = functools.cache(utils._get_auth_and_session)  # one login for all
    driver = fake.PredictableNodeUUIDDriver
    driver.vcpus, driver.memory_mb, driver.local_gb = VCPUS, MEMORY_MB, DISK_GB
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    services = []
    for host in hosts:
        CONF.set_override("host", host)
        compute = service.Service.create(
            host=host,
            binary="nova-compute",
            topic=rpcapi.RPC_TOPIC,
            topic_alt=rpcapi.RPC_TOPIC_ALT,
        )
        compute.start()
        services.append(compute)
        print(f"{len(services)} of {len(hosts)}: {host}", flush=True)
    print("all computes run", flush=True)
    ended.wait()


if __name__ == "__main__":
    main()
