"""File servers on loopback that misbehave as a test tells them to: HTTPS with a certificate of its own, and FTP."""
import http.server
import pathlib
import socketserver
import ssl
import subprocess
import threading


def make_certificate(folder, name):
    """A key and a certificate for 127.0.0.1 that signs itself; returns the path of the certificate."""
    paths = {end: pathlib.Path(folder) / f"{name}.{end}" for end in ("key", "pem")}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", paths["key"], "-out", paths["pem"]],
        check=True, capture_output=True, timeout=60)
    return paths["pem"]


class Behaviour:
    """What a server of the files in `folder` has done, and what it is to do. `asked` has (path, first byte) of each transfer."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.asked = []
        self.breaks = {}  # path: bytes after which its next transfer breaks off
        self.redirects = {}  # path: the address to which it leads (HTTP)
        self.held = {}  # path: an event that its transfer waits for
        self.resumes = True  # false: transfers begin at the first byte (FTP)
        self.lock = threading.Lock()

    def content(self, path, begin):
        """The bytes to send, and whether the transfer breaks off after them; None: there is no such file."""
        with self.lock:
            self.asked.append((path, begin))
            stop = self.breaks.pop(path, None)
        if event := self.held.get(path):
            event.wait(300)
        file = self.folder / path.lstrip("/")
        if not file.is_file():
            return None
        content = file.read_bytes()[begin:]
        return (content, False) if stop is None else (content[:stop], True)

    def files(self):
        return [path.rsplit("/", 1)[-1] for path, _ in self.asked]


class _Https(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour = None

    def do_GET(self):
        if target := self.behaviour.redirects.get(self.path):
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        wanted = self.headers.get("Range", "bytes=0-")
        begin = int(wanted[len("bytes="):-1])
        found = self.behaviour.content(self.path, begin)
        if found is None:
            return self.send_error(404)
        content, breaks = found
        whole = (self.behaviour.folder / self.path.lstrip("/")).stat().st_size
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{whole - 1}/{whole}")
        self.send_header("Content-Length", str(whole - begin))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = breaks
        return None

    def log_message(self, *_):
        pass


class _Ftp(socketserver.StreamRequestHandler):
    # Each answer is a packet of its own: none waits for the next.
    disable_nagle_algorithm = True
    behaviour = None
    data, begin, folder = None, 0, "/"

    def say(self, text):
        self.wfile.write(f"{text}\r\n".encode())

    def finish(self):
        self.close_data()
        super().finish()

    def close_data(self):
        if self.data is not None:
            self.data.server_close()
        self.data = None

    def handle(self):
        self.say("220 here")
        for line in self.rfile:
            command, _, argument = line.decode().strip().partition(" ")
            answer = getattr(self, f"on_{command.lower()}", None)
            if answer is None:
                self.say("502 not known")
            elif answer(argument) == "end":
                return

    def path(self, name):
        return name if name.startswith("/") else f"{self.folder.rstrip('/')}/{name}"

    def on_user(self, name):
        self.say("331 any password" if name == "anonymous" else "530 anonymous alone")

    def on_pass(self, _):
        self.say("230 in")

    def on_pwd(self, _):
        self.say('257 "/"')

    def on_cwd(self, name):
        folder = self.path(name)
        if (self.behaviour.folder / folder.lstrip("/")).is_dir():
            self.folder = folder
            return self.say("250 there")
        return self.say("550 no such folder")

    def on_type(self, _):
        self.say("200 bytes")

    def on_size(self, name):
        file = self.behaviour.folder / self.path(name).lstrip("/")
        self.say(f"213 {file.stat().st_size}" if file.is_file() else "550 no such file")

    def on_rest(self, position):
        if not self.behaviour.resumes:
            return self.say("502 not known")
        self.begin = int(position)
        return self.say("350 from there")

    def on_epsv(self, _):
        # Every transfer has a port of its own, and a failed one may have left one.
        self.close_data()
        self.data = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.data.timeout = 60
        self.say(f"229 here (|||{self.data.server_address[1]}|)")

    def on_retr(self, name):
        begin, self.begin = self.begin, 0
        found = self.behaviour.content(self.path(name), begin)
        if found is None:
            self.close_data()
            return self.say("550 no such file")
        content, breaks = found
        self.say("150 it comes")
        connection, _ = self.data.get_request()
        with connection:
            connection.sendall(content)
        self.close_data()
        self.say("426 broken off" if breaks else "226 all sent")
        return "end" if breaks else None

    def on_quit(self, _):
        self.say("221 bye")
        return "end"


class _Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True
    context = None

    def get_request(self):
        connection, address = super().get_request()
        # The handshake is the handler's thread's, at its first byte: a client that says nothing holds up nobody.
        return (connection if self.context is None else
                self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)), address

    def handle_error(self, request, client_address):
        pass  # a client that refuses the certificate, or has gone


def serve(test, folder, certificate=None):
    """Serves `folder` until the unittest `test` ends: over HTTPS with a certificate, else FTP. Returns address and behaviour."""
    behaviour = Behaviour(folder)
    handler = type("Handler", (_Ftp if certificate is None else _Https,), {"behaviour": behaviour})
    server = _Threads(("127.0.0.1", 0), handler)
    if certificate is not None:
        server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    test.addCleanup(thread.join)
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return f"{'ftp' if certificate is None else 'https'}://127.0.0.1:{server.server_address[1]}", behaviour
