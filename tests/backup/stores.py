"""What stands for object stores: servers of S3 and Azure that others wrote, a proxy with faults between, Google's words for S3's, certificates for TLS."""

import base64
import datetime
import email.utils
import hashlib
import hmac
import http.client
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time


class Failed(Exception):
    pass


class Unavailable(Exception):
    """What a test needs is not on this machine."""


def check(holds, what):
    if not holds:
        raise Failed(what)


class Proxy:
    """Passes requests on, but for those that a test's `fault` takes: it is called with method, path and how often that came so far.

    With a `token` only those are passed on that have it: credentials of the others have ended. With a certificate it speaks TLS."""

    def __init__(self, port, certificate=None):
        proxy, self.backend = self, port
        self.lock = threading.Lock()
        self.clear()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body=b"", headers=()):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def handle_one(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                key = f"{self.command} {self.path}"
                with proxy.lock:
                    count = proxy.seen[key] = proxy.seen.get(key, 0) + 1
                    proxy.count += 1
                fault = proxy.fault(self.command, self.path, count) if proxy.fault else None
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                fault = fault or proxy.answered(self.command, self.path, headers)
                if proxy.token and self.headers.get("x-amz-security-token") != proxy.token:
                    proxy.refused += 1
                    fault = (403, b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")
                if fault == "cut":
                    self.close_connection = True
                    return
                if fault == "silent":
                    time.sleep(2)
                    self.close_connection = True
                    return
                if isinstance(fault, tuple):
                    return self.answer(*fault)
                backend = http.client.HTTPConnection("127.0.0.1", proxy.backend, timeout=30)
                backend.request(self.command, self.path, body, headers)
                answer = backend.getresponse()
                body = answer.read()
                if fault == "lose":
                    self.close_connection = True
                    return
                headers = [
                    (name, value)
                    for name, value in answer.getheaders()
                    if name.lower() not in ("connection", "transfer-encoding", "server", "date")
                ]
                if self.command == "HEAD":
                    self.send_response(answer.status)
                    for name, value in headers:
                        self.send_header(name, value)
                    self.end_headers()
                elif fault == "half":
                    self.send_response(answer.status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                else:
                    self.answer(answer.status, body, [h for h in headers if h[0].lower() != "content-length"])

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(certificate)
            # Each connection's own thread shakes hands, not the one that takes connections.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answered(self, method, path, headers):
        """What the proxy itself answers, if it does; else what is passed on may be altered in `headers`."""

    def clear(self):
        self.fault, self.token, self.refused, self.seen, self.count = None, None, 0, {}, 0


class Google(Proxy):
    """Google's store, by its XML interface. Its requests are S3's but for credentials and conditions, which are looked at here and put into
    S3's words for the server behind. It knows one service account, whose tokens it verifies, and gives tokens as a machine of Google's has them."""

    MACHINES_TOKEN = "ya29.of-a-machine"

    def __init__(self, port):
        from cryptography.hazmat.primitives.asymmetric import rsa

        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.accounts, self.machines, self.conditions = 0, 0, 0
        super().__init__(port)

    def account(self):
        """The file of a service account, which says where its store is."""
        from cryptography.hazmat.primitives import serialization as form

        pem = self.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()
        place = f"http://127.0.0.1:{self.port}"
        named = {"client_email": "shop@plinth.test", "private_key_id": "k1", "gcs_base_url": place}
        return json.dumps({"type": "service_account", "private_key": pem, **named})

    def is_of_the_account(self, token):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        plain = lambda part: base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        try:
            head, claims, signature = token.split(".")
            self.key.public_key().verify(plain(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        except (ValueError, InvalidSignature):
            return False
        claims = json.loads(plain(claims))
        return claims["iss"] == "shop@plinth.test" and claims["iat"] <= time.time() + 60 and claims["exp"] > time.time()

    def answered(self, method, path, headers):
        named = {name.lower(): name for name in headers}
        if path.startswith("/computeMetadata/"):
            if headers.get(named.get("metadata-flavor")) != "Google" or "/service-accounts/default/token" not in path:
                return 403, b"no"
            self.machines += 1
            return 200, json.dumps({"access_token": self.MACHINES_TOKEN, "expires_in": 3600}).encode()
        token = headers.pop(named.get("authorization", ""), "").removeprefix("Bearer ")
        if token != self.MACHINES_TOKEN:
            if not self.is_of_the_account(token):
                return 401, b"<Error><Code>AuthenticationRequired</Code><Message>Authentication required.</Message></Error>"
            self.accounts += 1
        if (generation := headers.pop(named.get("x-goog-if-generation-match", ""), None)) is not None:
            check(generation == "0", f"generation {generation}: no such condition was expected")
            headers["If-None-Match"] = "*"
            self.conditions += 1
        headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
        return None


class Process:
    """A program that listens on a free port of loopback, until it is ended."""

    def __init__(self, command, log, environment=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with open(log, "wb") as out:
            self.child = subprocess.Popen(
                command(str(self.port)), stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment
            )
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            check(self.child.poll() is None, open(log).read())
            time.sleep(0.05)
        raise Failed(f"it doesn't listen: {open(log).read()}")

    def end(self):
        self.child.kill()
        self.child.wait()


def program(variable):
    """A program that `run` has installed."""
    path = os.environ.get(variable, "")
    if not os.path.exists(path):
        raise Unavailable(path or f"{variable} names no program")
    return path


# The account that every Azurite has, by its documentation.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def make_container(port, name):
    """Makes a container of Azurite's, by a request that is signed with the key of the account."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    listed = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + listed + f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signature = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(signature).decode()}"
    headers["Content-Length"] = "0"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("PUT", f"/{AZURE_ACCOUNT}/{name}?restype=container", None, headers)
    answer = connection.getresponse()
    check(answer.status == 201, (answer.status, answer.read()))


def certificates(directory):
    """An authority of our own, and the certificate of `localhost` that it has signed: two files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.timezone.utc)

    def certificate(name, key, issuer, issuer_key, extension):
        named = lambda text: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=False)
            .sign(issuer_key, hashes.SHA256())
        )

    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = certificate("ours", authority_key, "ours", authority_key, x509.BasicConstraints(ca=True, path_length=None))
    own = certificate("localhost", key, "ours", authority_key, x509.SubjectAlternativeName([x509.DNSName("localhost")]))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = [os.path.join(directory, name) for name in ("authority.pem", "server.pem")]
    for file, contents in zip(files, (authority.public_bytes(pem), own.public_bytes(pem) + private)):
        with open(file, "wb") as out:
            out.write(contents)
    return files
