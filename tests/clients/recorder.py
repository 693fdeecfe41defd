"""Stands between a client and the server and keeps what the server said, byte for byte.

Recorder(port) listens on a port of its own and forwards everything both ways. answers() takes the recorded bytes apart
into (method, path, status, content type, body), so that a test can validate every answer that a client saw.
"""
import gzip
import http.client
import io
import socket
import threading


class Recorder:
    def __init__(self, port):
        self.target = port
        self.streams = []  # [from client, from server] of each connection
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            streams = [bytearray(), bytearray()]
            self.streams.append(streams)
            self.sockets += [client, server]
            threading.Thread(target=self.forward, args=(client, server, streams[0]), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, streams[1]), daemon=True).start()

    @staticmethod
    def forward(source, sink, record):
        try:
            while data := source.recv(65536):
                record += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # either side has gone
            source.close()
            sink.close()

    def close(self):
        for each in [self.listener, *self.sockets]:
            each.close()

    def answers(self):
        out = []
        for sent, received in self.streams:
            requests = parse_requests(bytes(sent))
            file = io.BytesIO(bytes(received))
            for method, path in requests:
                answer = parse_response(file, method)
                if answer is not None:
                    out.append((method, path, *answer))
        return out


class FakeSocket:
    """What HTTPResponse reads from: it closes its file after each answer, but the recording goes on."""

    def __init__(self, file):
        self.file = file

    def makefile(self, *_):
        file = self.file

        class Unclosed(io.BytesIO):
            def read(self, *size):
                return file.read(*size)

            def read1(self, *size):
                return file.read1(*size)

            def readline(self, *size):
                return file.readline(*size)

            def readinto(self, buffer):
                return file.readinto(buffer)

            def peek(self, *_):
                return b""

        return Unclosed()


def parse_requests(data):
    """[(method, path)] of the requests that were sent whole."""
    out = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            break
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        method, path, _ = lines[0].split(" ", 2)
        out.append((method, path.partition("?")[0]))
        data = rest[int(headers.get("content-length", 0)):]
    return out


def parse_response(file, method):
    """(status, content type, body), or None if the answer did not come whole."""
    response = http.client.HTTPResponse(FakeSocket(file), method=method)
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, OSError, ValueError):
        return None
    if response.getheader("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return response.status, response.getheader("content-type", ""), body


def events(body):
    """The data of a stream of server-sent events, as (event name or None, text)."""
    out = []
    for block in body.decode().split("\n\n"):
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[len("event: "):]
            elif line.startswith("data: "):
                data = line[len("data: "):]
        if data is not None:
            out.append((name, data))
    return out
