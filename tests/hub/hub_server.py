"""A hub that speaks the protocol of the Hugging Face hub, with faults: see HubServer and FAULTS."""
import hashlib
import json
import random
import re
import socket
import socketserver
import ssl
import threading
import time
import urllib.parse


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    """Files of one model at one commit. Those with the endings of weights are large (LFS), as on the hub."""

    def __init__(self, files, commit="1" * 40, gated=None, bare=False):
        self.files, self.commit, self.gated = files, commit, gated
        self.bare = bare  # the list says neither sizes nor digests, as some mirrors
        self.lies = {}  # path: (size, sha256) of the list, in place of the truth

    def is_large(self, path):
        return path.endswith((".gguf", ".safetensors", ".bin"))

    def digest(self, path):
        data = self.files[path]
        return sha256(data) if self.is_large(path) else git_sha1(data)

    def listing(self):
        siblings = []
        for path, data in self.files.items():
            sibling = {"rfilename": path}
            size, digest = self.lies.get(path, (len(data), sha256(data)))
            if not self.bare:
                sibling |= {"size": size, "blobId": git_sha1(data)}
                if self.is_large(path):
                    sibling["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
            siblings.append(sibling)
        return {"id": "x", "sha": self.commit, "siblings": siblings}

    def tree(self):
        """The same in the form of the hub's other list."""
        return [{"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
                | ({"lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 134}} if self.is_large(path) else {})
                for path, data in self.files.items()]


# Of an answer: what goes wrong. "list" and "file" say of which.
FAULTS = {
    "list": ["none", "500", "429", "cut", "page", "truncated", "garbage", "empty"],
    "file": ["none", "none", "500", "503", "429", "cut", "cut", "cut_chunked", "corrupt", "corrupt", "long_length",
             "short_length", "more", "ignore_range", "other_range", "416", "page", "loop", "compressed", "garbage",
             "empty", "other_tag", "no_length", "chunked", "downgrade"],
}


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            self.answer()
        except (OSError, ssl.SSLError):
            pass

    def answer(self):
        server = self.server
        if server.tls is not None:
            self.request = server.tls.wrap_socket(self.request, server_side=True)
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.request.recv(65536)
            if not piece:
                return
            data += piece
        lines = data.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers[name.strip().lower()] = value.strip()
        url = urllib.parse.urlsplit(target)
        server.hub.serve(self, server.name, method, url, headers)

    def send(self, status, headers, body=b"", length=None):
        text = f"HTTP/1.1 {status} Reason\r\n"
        if length is not False:
            text += f"Content-Length: {len(body) if length is None else length}\r\n"
        for name, value in headers.items():
            text += f"{name}: {value}\r\n"
        self.request.sendall((text + "Connection: close\r\n\r\n").encode() + body)


class Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, hub, name, tls):
        self.hub, self.name, self.tls = hub, name, tls
        super().__init__(("127.0.0.1", 0), Connection)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


class HubServer:
    """The hub on one port and the storage that large files are redirected to on another.

    `fault(kind, path)` is asked before every answer and returns one of FAULTS[kind]. `log` has what was asked:
    (server, method, path, headers)."""

    def __init__(self, tls=None):
        self.repos = {}
        self.log = []
        self.fault = lambda kind, path: "none"
        self.status = None  # (status, headers) of every answer of the hub
        self.retry_after = 0
        self.piece_pause = None  # seconds between pieces of 4 KiB
        self.rng = random.Random(0)
        self.lock = threading.Lock()
        self.hub = Listener(self, "hub", tls)
        self.storage = Listener(self, "storage", tls)
        self.scheme = "https" if tls else "http"
        self.endpoint = f"{self.scheme}://127.0.0.1:{self.hub.server_address[1]}"

    def close(self):
        for listener in (self.hub, self.storage):
            listener.shutdown()
            listener.server_close()

    def asked(self, server=None, method=None, containing=""):
        return [entry for entry in self.log
                if (server is None or entry[0] == server) and (method is None or entry[1] == method)
                and containing in entry[2]]

    def serve(self, connection, server, method, url, headers):
        path = urllib.parse.unquote(url.path)
        with self.lock:
            self.log.append((server, method, path, headers))
        if server == "storage":
            return self.serve_file(connection, method, path.removeprefix("/stored"), headers, True)
        if self.status is not None:
            return connection.send(self.status[0], self.status[1], b"{}")
        if path.startswith("/moved/"):
            return connection.send(307, {"Location": path.removeprefix("/moved")})
        found = re.fullmatch(r"/api/models/(.+?)/tree/([^?]+)", path)
        if found and found.group(1) in self.repos:
            return connection.send(200, {"Content-Type": "application/json"},
                                   json.dumps(self.repos[found.group(1)].tree()).encode())
        found = re.fullmatch(r"/api/models/(.+?)(?:/revision/([^?]+))?", path)
        if found:
            return self.serve_list(connection, *found.groups())
        return self.serve_file(connection, method, path, headers, False)

    def refuse(self, connection, code):
        connection.send(404, {"X-Error-Code": code}, b'{"error":"no"}')

    def serve_list(self, connection, name, revision):
        repo = self.repos.get(name)
        if repo is None:
            return self.refuse(connection, "RepoNotFound")
        if revision not in (None, "main", repo.commit):
            return self.refuse(connection, "RevisionNotFound")
        body = json.dumps(repo.listing()).encode()
        fault = self.fault("list", name)
        if fault in ("500", "429"):
            return connection.send(int(fault), {"Retry-After": self.retry_after} if fault == "429" else {})
        if fault == "cut":
            return connection.send(200, {}, body[:len(body) // 2], len(body))
        if fault == "truncated":
            return connection.send(200, {}, body[:len(body) // 2])
        if fault == "page":
            return connection.send(200, {"Content-Type": "text/html"}, b"<html>Please log in</html>")
        if fault == "garbage":
            return connection.request.sendall(b"\0\1\2 hello\r\n\r\n")
        if fault != "empty":
            connection.send(200, {"Content-Type": "application/json"}, body)

    def serve_file(self, connection, method, path, headers, stored):
        found = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        repo = self.repos.get(found.group(1)) if found else None
        if repo is None or found.group(3) not in repo.files:
            return self.refuse(connection, "EntryNotFound" if repo else "RepoNotFound")
        if repo.gated and not stored:
            return connection.send(repo.gated, {"X-Error-Code": "GatedRepo"})
        name = found.group(3)
        data, digest = repo.files[name], repo.digest(name)
        answer = {"X-Repo-Commit": repo.commit, "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if method == "HEAD" and repo.is_large(name) and not stored:
            pass  # redirected, below
        elif method == "HEAD":
            return connection.send(200, answer, b"", len(data))
        fault = self.fault("file", name) if method == "GET" else "none"
        if fault == "other_tag":
            answer["ETag"] = f'"{"0" * len(digest)}"'
        if repo.is_large(name) and not stored:
            answer |= {"X-Linked-ETag": answer["ETag"], "X-Linked-Size": len(data),
                       "Location": f"{self.scheme}://127.0.0.1:{self.storage.server_address[1]}/stored"
                                   f"{urllib.parse.quote(path)}"}
            if fault == "loop":
                answer["Location"] = urllib.parse.quote(path)
            if fault == "downgrade":
                answer["Location"] = "ftp://127.0.0.1/x"
            if fault in ("500", "503", "429"):
                return connection.send(int(fault), {"Retry-After": self.retry_after})
            return connection.send(302, answer)
        self.send_file(connection, data, answer, headers, fault)

    def send_file(self, connection, data, answer, headers, fault):
        begin, status, size = 0, 200, len(data)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        end = size
        if wanted and fault != "ignore_range":
            begin, status = int(wanted.group(1)), 206
            if wanted.group(2):
                end = min(size, int(wanted.group(2)) + 1)
            if fault == "other_range":
                begin = max(0, begin - 7)
            if begin >= size:
                return connection.send(416, {"Content-Range": f"bytes */{size}"})
            answer["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        body = data[begin:end]
        at = self.rng.randrange(len(body) + 1)
        if fault in ("500", "503", "429", "416"):
            return connection.send(int(fault), {"Retry-After": self.retry_after})
        if fault == "page":
            return connection.send(200, {"Content-Type": "text/html"}, b"<html>Please log in</html>")
        if fault == "garbage":
            return connection.request.sendall(b"HTTP/1.1 2OO OK\r\n\r\n" + body)
        if fault == "empty":
            return None
        if fault == "cut":
            return connection.send(status, answer, body[:at], len(body))
        if fault == "corrupt" and body:
            at = min(at, len(body) - 1)
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1:]
        if fault in ("chunked", "cut_chunked"):
            text = b"%x\r\n%s\r\n%x;x=y\r\n%s\r\n" % (at, body[:at], len(body) - at, body[at:])
            if at in (0, len(body)):
                text = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
            text += b"0\r\n\r\n"
            text = text if fault == "chunked" else text[:self.rng.randrange(len(text))]
            return connection.send(status, answer | {"Transfer-Encoding": "chunked"}, text, False)
        if fault == "no_length":
            return connection.send(status, answer, body[:at] if self.rng.random() < 0.5 else body, False)
        if fault == "compressed":
            answer["Content-Encoding"] = "gzip"
        lengths = {"long_length": len(body) + 5, "short_length": max(0, len(body) - 5)}
        if fault == "more":
            return connection.send(status, answer, body + b"more", len(body) + 4)
        pause = self.piece_pause
        if pause is None or (wanted and wanted.group(2)):  # or the look at a head
            return connection.send(status, answer, body, lengths.get(fault))
        connection.send(status, answer, b"", len(body))
        for i in range(0, len(body), 4096):
            connection.request.sendall(body[i:i + 4096])
            time.sleep(pause)
        return None


class Proxy(socketserver.ThreadingTCPServer):
    """An HTTP proxy: CONNECT and whole addresses. `seen` has its request lines and credentials."""
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self):
        self.seen = []
        super().__init__(("127.0.0.1", 0), ProxyConnection)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class ProxyConnection(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.request.recv(1)
        head = data.decode("latin-1")
        line = head.split("\r\n")[0]
        credentials = re.search(r"Proxy-Authorization: (.*)\r\n", head)
        self.server.seen.append((line, credentials.group(1) if credentials else None))
        method, target, _ = line.split(" ")
        if method == "CONNECT":
            host, port = target.rsplit(":", 1)
        else:
            url = urllib.parse.urlsplit(target)
            host, port = url.hostname, url.port
            data = head.replace(target, url.path + ("?" + url.query if url.query else ""), 1).encode("latin-1")
        with socket.create_connection((host, int(port))) as other:
            if method == "CONNECT":
                self.request.sendall(b"HTTP/1.1 200 Established\r\n\r\n")
            else:
                other.sendall(data)
            back = threading.Thread(target=pump, args=(other, self.request), daemon=True)
            back.start()
            pump(self.request, other)
            back.join()


def pump(source, sink):
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
