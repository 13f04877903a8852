# SPDX-License-Identifier: Apache-2.0

"""Start-up of the daemons."""

import logging

from laas_service.cmd import process


def test_unknown_options_and_sections_are_warned_about_at_start(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("laas_service.cmd.process.logging.setup", lambda conf, prog: None)
    monkeypatch.setattr(process, "limit_heaps", lambda: None)
    file = tmp_path / "laas.conf"
    file.write_text("[api]\nthread_count = 4\nthreads = 4\n[apy]\nthreads = 4\n")
    with caplog.at_level(logging.WARNING):
        process.daemon_configured("laas-api", ["--config-file", str(file)])
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: [api] thread_count has no effect: there is no such option",
        f"{file}: [apy] threads has no effect: there is no such section",
    ]
