# SPDX-License-Identifier: Apache-2.0

"""Whether hosts and links of tenants are free without evidence that these are gone."""

from oslo_config import cfg

from laas_service.app.loopback import is_loopback
from laas_service.conf.api import ApiOptions
from laas_service.conf.compute import is_configured
from laas_service.conf.worker import WorkerOptions
from laas_service.messages import ConfirmedBy


def frees_unread(conf: cfg.ConfigOpts, by: ConfirmedBy) -> bool:
    """Whether files alone free hosts and links; ``by`` is what confirms routes here.

    A service for this machine alone, without a subnet manager, frees them: there are no switches.
    """
    embedded = _serves_this_machine(conf) and by is ConfirmedBy.NOBODY
    return embedded or WorkerOptions.of(conf).free_unconfirmed


def frees_unanswered(conf: cfg.ConfigOpts) -> bool:
    """Whether hosts are free before the script that takes them back has answered.

    A service for this machine alone, without anything about compute, frees them: nobody reads its
    scripts.
    """
    embedded = _serves_this_machine(conf) and not is_configured(conf)
    return embedded or WorkerOptions.of(conf).free_unconfirmed


def _serves_this_machine(conf: cfg.ConfigOpts) -> bool:
    api = ApiOptions.of(conf)
    return api.auth_strategy == "none" and is_loopback(api.bind_host)
