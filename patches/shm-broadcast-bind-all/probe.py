"""Probe: does a message queue for other nodes listen on all addresses of the machine?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. MessageQueue is cut out of the installed shm_broadcast.py by its syntax tree and
run as it is. In place of ZeroMQ's sockets it gets plain TCP ones, which do open a port: the
readers that it is for must reach it at the address they are told, and the system must not have
opened that port at all addresses.
"""

from __future__ import annotations
import __future__

import ast
import dataclasses
import os
import socket
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_FILE = os.path.join("distributed", "device_communicators", "shm_broadcast.py")
_CLASSES = ("Handle", "MessageQueue")
_NAMES = ("SUB", "SUBSCRIBE", "XPUB", "XPUB_VERBOSE", "IPV6")
_ALL = {False: "0.0.0.0", True: "::"}  # noqa: S104 - what is looked for, and not stayed with


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Socket:
    """A plain TCP socket with the methods of a ZeroMQ socket; ipc paths are only remembered."""

    opened: list[_Socket] = []  # noqa: RUF012 - all of a run

    def __init__(self, *_: object) -> None:
        self.ipv6 = False
        self.tcp: socket.socket | None = None
        self.path = ""
        self.opened.append(self)

    def setsockopt(self, option: object, value: object) -> None:
        self.ipv6 = self.ipv6 or (option == "IPV6" and value == 1)

    setsockopt_string = setsockopt

    def bind(self, address: str) -> None:
        host, port, self.path = self._parts(address)
        if not self.path:
            self.tcp = socket.socket(socket.AF_INET6 if self.ipv6 else socket.AF_INET)
            self.tcp.bind((_ALL[self.ipv6] if host == "*" else host, port))
            self.tcp.listen()

    def connect(self, address: str) -> None:
        host, port, self.path = self._parts(address)
        if not self.path:
            self.tcp = socket.create_connection((host, port), 5.0)
        elif self.path not in {other.path for other in self.opened if other is not self}:
            raise CantTellError(f"nobody listens at {address}")

    def close(self) -> None:
        if self.tcp is not None:
            self.tcp.close()

    def _parts(self, address: str) -> tuple[str, int, str]:
        kind, _, rest = address.partition("://")
        host, _, port = rest.rpartition(":")
        return (host.strip("[]"), int(port), "") if kind == "tcp" else ("", 0, rest)

    def listens_on(self) -> str:
        """Tell where the system says this is open to callers, if it is a TCP port."""
        return str(self.tcp.getsockname()[0]) if self.tcp is not None else ""


def look(package: str) -> tuple[int, str]:
    """Give the exit status and the line."""
    module = _load(os.path.join(package, _FILE))
    stories = [("127.0.0.1", 1, 1), ("127.0.0.1", 2, 1)]
    if sys.platform == "linux":  # where all of 127 is this machine
        stories += [("127.0.0.2", 2, 1)]
    if module["knows_ipv6"] and _has_ipv6():
        stories += [("::1", 2, 1)]
    for address, readers, local in stories:
        with _sockets() as opened:
            queue = module["MessageQueue"](readers, local, connect_ip=address)
            writers = list(opened)
            for rank in range(readers):
                module["MessageQueue"].create_from_handle(queue.export_handle(), rank)
            for writer in writers:
                if writer.listens_on() in _ALL.values():
                    where = f"{writer.listens_on()} for readers that connect to {address}"
                    return PRESENT, f"fault present: a queue listens on {where}"
    return ABSENT, f"fault absent: {len(stories)} queues listen only where their readers connect"


@contextmanager
def _sockets() -> Iterator[list[_Socket]]:
    _Socket.opened.clear()
    try:
        yield _Socket.opened
    finally:
        for one in _Socket.opened:
            one.close()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def _load(path: str) -> dict[str, Any]:
    """Run the classes of the file at PATH, and nothing else of it."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    body = [node for node in tree.body if getattr(node, "name", "") in _CLASSES]
    module = vars(ModuleType("installed"))
    module.update({name: name for name in _NAMES})
    module["Context"] = lambda: SimpleNamespace(socket=_Socket)
    module["ShmRingBuffer"] = lambda *_: SimpleNamespace(handle=lambda: (1, 1, 1, "memory"))
    module["get_ip"] = lambda: "127.0.0.1"
    module["get_open_port"] = _free_port
    module["get_open_zmq_ipc_path"] = lambda: f"ipc:///path/{_free_port()}"
    module["is_valid_ipv6_address"] = lambda address: ":" in address
    module["logger"] = SimpleNamespace(info=lambda *_: None, debug=lambda *_: None)
    module.update(dataclass=dataclasses.dataclass, field=dataclasses.field)
    module.update(contextmanager=contextmanager, os=os, Event=object)
    module["knows_ipv6"] = any(getattr(node, "id", "") == "IPV6" for node in ast.walk(tree))
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    sys.modules["installed"] = ModuleType("installed")  # where dataclass looks
    code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
    exec(code, module)  # noqa: S102 - a probe is there to run the installed code
    return module


def main(arguments: list[str]) -> int:
    """Print the line and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        status, line = _look_or_say_why(arguments[0])
    except CantTellError as why:
        status, line = CANT_TELL, f"can't tell: {why}"
    print(line)
    return status


def _look_or_say_why(package: str) -> tuple[int, str]:
    try:
        return look(package)
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the queue works in a way not known here: {error!r}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
