# SPDX-License-Identifier: Apache-2.0

"""The stand-in's routes, and its server."""

from __future__ import annotations

import base64
import secrets
import ssl
import subprocess
import threading
from contextlib import contextmanager

from flask import Blueprint, Flask, jsonify, request
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.ufm.faults import Faults
from tests.ufm.state import Refusal, Ufm

FOR_EVER = 315360000
"""Seconds of a token's life [guide]."""


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *args, **kwargs):
        pass

    def setup(self):
        super().setup()
        self.connection.settimeout(60)


class Standin:
    """A running stand-in at ``url``; ``ufm`` is its state, ``faults`` spoils its requests.

    ``tls`` are the paths of a certificate and its key; ``clients`` is the path of the authority
    of clients' certificates.
    """

    def __init__(self, ufm: Ufm, tls=None, clients=None):
        self.ufm = ufm
        self.faults = Faults(application(ufm))
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            if clients:
                context.load_verify_locations(clients)
                context.verify_mode = ssl.CERT_OPTIONAL
        self._server = make_server(
            "127.0.0.1",
            0,
            self.faults,
            threaded=True,
            request_handler=Handler,
            ssl_context=context,
        )
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def token(self, user="admin"):
        """A token as the web interface makes one."""
        token = secrets.token_hex(15)
        self.ufm.tokens[token] = user
        return token

    def stop(self):
        self.faults.given_up.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def standing_in(ufm: Ufm | None = None, **options):
    standin = Standin(ufm or Ufm(), **options)
    try:
        yield standin
    finally:
        standin.stop()


def certificate(directory, name, authority=None):
    """Paths of a certificate for 127.0.0.1 and its key, signed by ``authority`` or itself."""
    key, cert = directory / f"{name}.key", directory / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", cert]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    if authority:
        command += ["-CA", authority[0], "-CAkey", authority[1]]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    key.chmod(0o600)
    return str(cert), str(key)


def application(ufm: Ufm) -> Flask:
    """The REST interface on ``ufm``."""
    app = Flask("ufm")
    api, logins = _api(ufm), {}
    for prefix, login in (
        ("/ufmRest", _by_password),
        ("/ufmRestV2", _by_session),
        ("/ufmRestV3", _by_token),
        ("/ufmRestKrb", lambda ufm: None),
    ):
        app.register_blueprint(api, url_prefix=prefix, name=prefix[1:])
        logins[prefix[1:]] = login

    @app.before_request
    def log_in():
        if request.path == "/dologin":
            return None
        name = request.blueprint or ""
        if name not in logins or logins[name](ufm) is None:
            return "unauthorized", 401
        ufm.tick()
        ufm.calls.append((request.method, request.path.removeprefix(f"/{name}")))
        return None

    @app.post("/dologin")
    def dologin():
        """A session for ``/ufmRestV2`` [guide]."""
        user = request.form.get("httpd_username", "")
        if ufm.passwords.get(user) != request.form.get("httpd_password"):
            return "unauthorized", 401
        cookie = secrets.token_hex(15)
        ufm.sessions[cookie] = user
        answer = app.make_response("")
        answer.set_cookie("session", cookie)
        return answer

    @app.errorhandler(Refusal)
    def refused(error):
        return jsonify(error=str(error)), error.status

    return app


def _by_password(ufm):
    """Basic, or a client's certificate [guide, nico]."""
    if request.environ.get("SSL_CLIENT_CERT"):
        return "certificate"
    login = request.authorization
    if login is None or login.type != "basic" or login.username is None:
        return None
    return login.username if ufm.passwords.get(login.username) == login.password else None


def _by_session(ufm):
    return ufm.sessions.get(request.cookies.get("session", ""))


def _by_token(ufm):
    """``Authorization: Basic <token>``, the token itself and not base64 of anything [guide]."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return ufm.tokens.get(token) if scheme == "Basic" else None


def basic(user, password):
    """The header of basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _api(ufm: Ufm) -> Blueprint:
    api = Blueprint("api", __name__)

    def body():
        given = request.get_json(silent=True, force=True)
        if not isinstance(given, dict):
            raise Refusal(400, "the body is no JSON object")
        return given

    def done(job=None):
        """200, or 202 with the place of the job [guide]."""
        if job is None:
            return jsonify({}), 200
        return "", 202, {"Location": f"{request.host_url}{request.blueprint}/jobs/{job}"}

    def missing(what):
        if ufm.unknown is not None:
            return jsonify(ufm.unknown), 200
        raise Refusal(404, f"no {what}")

    def wishes(name):
        return request.args.get(name, "").lower() == "true"

    @api.post("/app/tokens")
    def tokens():
        """A token [guide]; times are the server's own [fork]."""
        token = secrets.token_hex(15)
        ufm.tokens[token] = "admin"
        return jsonify(
            access_token=token,
            revoked=False,
            issued_at=ufm.local_time(),
            expires_in=FOR_EVER,
            username="admin",
        )

    @api.get("/app/ufm_version")
    def version():
        return jsonify(ufm_release_version=".".join(map(str, ufm.release)))

    @api.get("/app/smconf")
    def smconf():
        zero = "0x0000000000000000"
        return jsonify(
            subnet_prefix="0xfe80000000000000",
            m_key=zero,
            sm_key="0x0000000000000001",
            sa_key="0x0000000000000001",
            m_key_per_port=False,
        )

    @api.get("/resources/pkeys")
    def pkeys():
        """All partitions.

        ``guids_data`` and ``qos_conf`` do not work together (nvbug 5409095) [nico]: the answer
        is the one without options [chosen], which has another shape [nico], a list [chosen].
        """
        guids, qos = wishes("guids_data"), wishes("qos_conf")
        with ufm.lock:
            if guids == qos:
                return jsonify(list(ufm.partitions))
            return jsonify({key: ufm.shown(key, guids=guids, qos=qos) for key in ufm.partitions})

    @api.get("/resources/pkeys/<pkey>")
    def pkey(pkey):
        key = ufm.key(pkey, writing=False)
        with ufm.lock:
            if key not in ufm.partitions:
                return missing(f"pkey {key}")
            guids, qos = wishes("guids_data"), wishes("qos_conf")
            return jsonify(ufm.shown(key, guids=guids, qos=qos))

    @api.post("/resources/pkeys/add")
    def make():
        return done(ufm.make(body()))

    @api.post("/resources/pkeys")
    def add():
        return done(ufm.add(body()))

    @api.put("/resources/pkeys")
    def replace():
        return done(ufm.add(body(), replace=True))

    @api.put("/resources/pkeys/qos_conf")
    def qos():
        ufm.set_qos(body())
        return done()

    @api.delete("/resources/pkeys/<pkey>/guids/<guids>")
    def remove(pkey, guids):
        return done(ufm.remove(pkey, guids.split(",")))

    @api.post("/actions/remove_guids_from_pkey")
    def remove_by_action():
        """The older way, which [k8s] and [nico] still use."""
        given = body()
        return done(ufm.remove(given.get("pkey"), given.get("guids")))

    @api.delete("/resources/pkeys/<pkey>")
    def delete(pkey):
        return done(ufm.delete(pkey))

    @api.post("/resources/pkeys/hosts")
    def add_hosts():
        given = body()
        names = set(str(given.get("hosts_names", "")).split(","))
        guids = ufm.fabric.hosts(names)
        return done(ufm.add({**given, "guids": guids}))

    @api.delete("/resources/pkeys/<pkey>/hosts/<names>")
    def remove_hosts(pkey, names):
        guids = ufm.fabric.hosts(set(names.split(",")))
        return done(ufm.remove(pkey, guids))

    @api.get("/jobs/<id>")
    def job(id):
        with ufm.lock:
            if id not in ufm.jobs:
                return missing(f"job {id}")
            known = ufm.jobs[id]
            progress = 0 if known.status == "Running" else 100
            return jsonify(ID=id, Status=known.status, Progress=progress, Summary=known.summary)

    @api.get("/resources/systems")
    def systems():
        with ufm.lock:
            return jsonify(ufm.fabric.systems(request.args.get("type")))

    @api.get("/resources/ports")
    def ports():
        with ufm.lock:
            return jsonify(
                ufm.fabric.ports(
                    request.args.get("sys_type"), wishes("active"), wishes("show_disabled")
                )
            )

    @api.get("/resources/links")
    def links():
        """All, or a page of them in an object [guide]."""
        with ufm.lock:
            rows = ufm.fabric.links()
        if "rpp" not in request.args:
            return jsonify(rows)
        size, number = int(request.args["rpp"]), int(request.args.get("page_number", 1))
        return jsonify(data=rows[(number - 1) * size : number * size])

    @api.get("/app/unhealthy_ports")
    def unhealthy():
        with ufm.lock:
            return jsonify(ufm.unhealthy_ports())

    @api.put("/app/unhealthy_ports")
    def set_policy():
        ufm.set_policy(body())
        return done()

    @api.post("/reports/Topology_Compare")
    def compare():
        return done(ufm.compare())

    @api.get("/reports/last_report/Topology_Compare")
    def last_comparison():
        """The last report; without one as of an object that does not exist [chosen]."""
        with ufm.lock:
            return jsonify(ufm.report) if ufm.report else missing("report")

    @api.post("/actions")
    def actions():
        given = body()
        if given.get("action") != "mark_device_unhealthy":
            raise Refusal(400, "unknown action")
        return done(ufm.isolate_device(given))

    return api
