"""A Redis of one's own for tests (Debian's redis-server), a small client for it, and a proxy that misbehaves: see Redis and Proxy."""
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """redis-server on a port of its own, without files. It can be stopped and started again: empty then."""

    def __init__(self, *options, password="", tls=None):
        """tls: files of its certificate ("cert", "key"), and of those that clients must show ("clients")."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed: tools/setup.sh test does that")
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.password = password
        self.command = [program, "--save", "", "--appendonly", "no", "--dir", self.folder.name, "--bind", "127.0.0.1", *options]
        if password:
            self.command += ["--requirepass", password]
        self.tls_port = None
        if tls:
            self.tls_port = free_port()
            self.command += ["--tls-port", str(self.tls_port), "--tls-cert-file", tls["cert"], "--tls-key-file", tls["key"],
                             "--tls-ca-cert-file", tls.get("clients", tls["cert"]), "--tls-auth-clients", "yes" if "clients" in tls else "no"]
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                if self.ask("PING") == b"PONG":
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("redis-server does not start")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self):
        self.stop()
        self.folder.cleanup()

    def ask(self, *words):
        """One command; bytes, an int, None or a list. An error is raised."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
            stream = link.makefile("rwb")
            if self.password:
                write(stream, "AUTH", self.password)
                read(stream)
            write(stream, *words)
            return read(stream)

    def keys(self, pattern="*"):
        return self.ask("KEYS", pattern)


def write(stream, *words):
    stream.write(b"*%d\r\n" % len(words))
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        stream.write(b"$%d\r\n%s\r\n" % (len(word), word))
    stream.flush()


def read(stream):
    line = stream.readline()
    if not line:
        raise ConnectionError("Redis hung up")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b":":
        return int(rest)
    size = int(rest)
    if size < 0:
        return None
    if kind == b"$":
        return stream.read(size + 2)[:-2]
    return [read(stream) for _ in range(size)]


class Proxy:
    """Between a server and Redis. `fault`: None; "stall" (takes everything, says nothing), "trickle" (a byte a tenth of a
    second), "cut" (hangs up after some bytes), "noise" (bytes of answers are changed)."""

    def __init__(self, port):
        self.to = port
        self.fault = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to), timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for source, sink, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pump, args=(source, sink, answers), daemon=True).start()

    def pump(self, source, sink, answers):
        try:
            while data := source.recv(1 << 16):
                self.send(sink, data, answers)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def send(self, sink, data, answers):
        while self.fault == "stall":
            time.sleep(0.02)
        if not answers:
            sink.sendall(data)
            return
        if self.fault == "cut" and len(data) > 100:
            sink.sendall(data[:len(data) // 2])
            raise OSError("cut")
        if self.fault == "noise":
            data = bytes(byte ^ 0x55 if i % 97 == 13 else byte for i, byte in enumerate(data))
        while self.fault == "trickle" and data:
            sink.sendall(data[:1])
            data = data[1:]
            time.sleep(0.1)
        sink.sendall(data)

    def close(self):
        self.listener.close()


def make_certificate(folder, name=""):
    """A certificate for localhost that signs itself."""
    folder = pathlib.Path(folder)
    cert, key = str(folder / f"{name}cert.pem"), str(folder / f"{name}key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return {"cert": cert, "key": key}
