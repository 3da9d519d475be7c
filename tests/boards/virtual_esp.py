"""A virtual ESP32: a chip in its loader at the other end of a line, with a flash in memory.

It speaks the serial protocol of the ROM loader and of esptool's stub (Espressif, "Serial
Protocol"), over a socket, over RFC 2217 with the reset circuit of a development board on DTR and
RTS, or over a pseudo-terminal. Its flash is NOR: a program can only clear bits.

Knows: the protocol, registers that esptool reads (their addresses are esptool's).
Must not know: what is written into the flash.
"""

import contextlib
import hashlib
import os
import select
import socket
import struct
import threading
import time
import tty
import zlib

from esp_lines import Lines, PtyLine, SocketLine
from esptool.targets import CHIP_DEFS

SECTOR = 4096
END = 0xC0
BOOT_S = 0.5  # EN rises slowly: the strapping pin counts as it is by then
FAILED, BAD_CHECKSUM, UNKNOWN = b"\1\6", b"\1\7", b"\1\5"
DATA_OPS = (0x03, 0x11)
IDS = {2: 0x1540EF, 4: 0x1640EF, 8: 0x1740EF}  # JEDEC id by MiB


class VirtualESP:
    """One chip.

    chip   name as in board.toml
    line   "socket", "rfc2217" or "pty"; `port` is its address
    mib    flash in MiB
    stub   "run": the uploaded stub starts; "refuse": the upload fails; "silent": it never answers
    runs   path of a serial port of what runs when it is not in its loader, or None

    `faults`: {number of a data frame, from 0: "drop", "corrupt", "lose", "reset" or "hang up"};
    "lose" obeys the frame and loses the answer. Each happens once.
    """

    def __init__(self, chip="esp32", line="socket", mib=4, stub="run", runs=None):
        self.rom = CHIP_DEFS[chip]
        self.flash = bytearray(b"\xff" * (mib << 20))
        self.mib, self.stub, self.runs = mib, stub, runs
        self.faults, self.erased, self.programmed = {}, [], 0
        self.data_frames = self.boots = 0
        self._io0 = self._en = True
        self._boot_at = None
        self._registers = {}
        self._pending = b""
        self._over = threading.Event()
        self._line = self._app = None
        self._into_loader()
        self._open(line)

    # ---- its line

    def _open(self, kind):
        self._listener = None
        if kind == "pty":
            self._line = PtyLine()
            self.port, target = self._line.port, self._serve
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = f"{kind}://127.0.0.1:{self._listener.getsockname()[1]}"
            target = self._accept
        self._lines = Lines(self) if kind == "rfc2217" else None
        self._thread = threading.Thread(target=target, daemon=True)
        self._thread.start()

    def close(self):
        """Power off."""
        self._over.set()
        self._thread.join(10)
        if self._listener:
            self._listener.close()
        if self._line:
            self._line.close()
        if self._app is not None:
            os.close(self._app)

    def _accept(self):
        while not self._over.is_set():
            if not select.select([self._listener], [], [], 0.05)[0]:
                self._clock()
                continue
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._line = SocketLine(connection, self._lines)
            self._serve()
            self._line.close()
            self._line = None

    def _serve(self):
        with contextlib.suppress(EOFError):
            while not self._over.is_set():
                frame = self._frame()
                if frame is not None:
                    self._obey(frame)

    def _say(self, data):
        if self._line:
            self._line.send(data)

    # ---- power and mode

    def pins(self, en, io0):
        """The reset circuit: EN low holds the chip, its rise starts it as IO0 says."""
        self._io0 = io0
        if not en:
            self._mode, self._boot_at = "held", None
        elif not self._en:
            self._boot_at = time.monotonic() + BOOT_S
        if self._boot_at and en and not io0:
            self._into_loader()
        self._en = en

    def _clock(self):
        if self._boot_at and time.monotonic() > self._boot_at:
            self._run()

    def _into_loader(self):
        self._mode, self._boot_at, self._pending = "rom", None, b""
        self._registers.clear()
        self._say(b"rst:0x1 (POWERON_RESET),boot:0x3 (DOWNLOAD_BOOT)\r\nwaiting for download\r\n")

    def to_loader(self):
        """As somebody does with the buttons."""
        self._into_loader()

    def hold(self):
        """As somebody does who keeps the reset button pressed."""
        self._mode = "held"

    def start(self):
        """As at power-on with nobody at the buttons."""
        self._run()

    def wait_for_boot(self, seconds=30):
        """Wait until what lies in flash was started; whether it was."""
        deadline = time.monotonic() + seconds
        while not self.boots and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.boots > 0

    def _run(self):
        self._mode, self._boot_at = "app", None
        self.boots += 1
        self._say(b"rst:0x1 (POWERON_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)\r\n")
        if self.runs and self._app is None:
            self._app = os.open(self.runs, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
            tty.setraw(self._app)

    def _relay(self, data):
        """What runs on the chip has the line."""
        if self._app is None:
            return
        if data:
            os.write(self._app, data)
        with contextlib.suppress(BlockingIOError):
            while said := os.read(self._app, 65536):
                self._say(said)

    # ---- frames

    def _frame(self):
        """The next SLIP frame (RFC 1055), None when none came in a short while."""
        self._clock()
        data = self._line.receive(0.002 if self._mode == "app" else 0.02)
        if self._mode == "app":
            self._relay(data)
            return None
        if self._mode == "held":
            return None
        self._pending += data
        if END not in self._pending:
            return None
        _, _, rest = self._pending.partition(b"\xc0")
        frame, mark, rest = rest.partition(b"\xc0")
        if not mark:
            return None
        self._pending = rest
        return frame.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")

    def _send_frame(self, data):
        data = data.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
        self._say(b"\xc0" + data + b"\xc0")

    def _answer(self, op, data=b"", value=0, status=b"\0\0"):
        body = data + status + (b"" if self._mode == "stub" else b"\0\0")
        self._send_frame(struct.pack("<BBHI", 1, op, len(body), value) + body)

    def _obey(self, frame):
        if len(frame) < 8 or frame[0]:
            return
        _, op, length, check = struct.unpack_from("<BBHI", frame)
        body = frame[8 : 8 + length]
        if op in DATA_OPS:
            fault = self.faults.pop(self.data_frames, None)
            self.data_frames += 1
            if fault:
                self._fault(fault, op, body, check)
                return
        self._command(op, body, check)

    def _fault(self, kind, op, body, check):
        if kind == "corrupt":
            self._command(op, body[:-1] + bytes([body[-1] ^ 1]), check)
        elif kind == "lose":
            line, self._line = self._line, None
            self._command(op, body, check)
            self._line = line
        elif kind == "reset":
            self._run()
        elif kind == "hang up":
            raise EOFError

    def _command(self, op, body, check):
        handler = self._HANDLERS.get(op)
        if handler is None or (op in self._STUB_ONLY and self._mode != "stub"):
            self._answer(0, status=UNKNOWN)
        elif op in DATA_OPS + (0x07,) and check != self.rom.checksum(body[16:]):
            self._answer(op, status=BAD_CHECKSUM)
        else:
            handler(self, op, body)

    # ---- commands: registers and flash parameters

    def _sync(self, op, body):
        for _ in range(8):
            self._answer(op, value=0 if self._mode == "stub" else 0x20120707)

    def _read_reg(self, op, body):
        address = struct.unpack("<I", body)[0]
        value = self._registers.get(address, 0)
        if address == self.rom.CHIP_DETECT_MAGIC_REG_ADDR and self.rom.USES_MAGIC_VALUE:
            value = self.rom.MAGIC_VALUE
        self._answer(op, value=value)

    def _write_reg(self, op, body):
        address, value, mask, _ = struct.unpack_from("<IIII", body)
        old = self._registers.get(address, 0)
        self._registers[address] = old & ~mask | value & mask
        base = self.rom.SPI_REG_BASE
        if address == base and value & 1 << 18:
            self._registers[base] = 0
            self._registers[base + self.rom.SPI_W0_OFFS] = self._flash_command()
        self._answer(op)

    def _flash_command(self):
        """What the flash chip answers to the command in the SPI controller's registers."""
        base = self.rom.SPI_REG_BASE
        command = self._registers.get(base + self.rom.SPI_USR2_OFFS, 0) & 0xFF
        if command == 0x9F:
            return IDS[self.mib]
        if command == 0x5A:  # SFDP, JEDEC JESD216: its signature is at 0
            return 0x50444653 if not self._registers.get(base + 4) else 0xEF
        return 0

    def _accept_it(self, op, body):
        self._answer(op)

    def _security_info(self, op, body):
        if self.rom.USES_MAGIC_VALUE:
            self._answer(0, status=UNKNOWN)
        else:
            self._answer(op, struct.pack("<IB7BII", 0, 0, *[0] * 7, self.rom.IMAGE_CHIP_ID, 0))

    # ---- commands: memory (the stub)

    def _memory(self, op, body):
        self._answer(op, status=FAILED if self.stub == "refuse" else b"\0\0")

    def _memory_end(self, op, body):
        self._answer(op)
        if self.stub == "run":
            self._mode = "stub"
            self._send_frame(b"OHAI")
        else:
            self._mode = "held"

    # ---- commands: flash

    def _erase(self, start, size):
        first, last = start // SECTOR, -(-(start + size) // SECTOR)
        self.flash[first * SECTOR : last * SECTOR] = b"\xff" * ((last - first) * SECTOR)
        if last > first:
            self.erased.append((first * SECTOR, last * SECTOR))

    def _program(self, at, data):
        now = int.from_bytes(self.flash[at : at + len(data)], "big")
        new = now & int.from_bytes(data, "big")
        self.flash[at : at + len(data)] = new.to_bytes(len(data), "big")
        self.programmed += len(data)

    def _begin(self, op, body):
        size, _, self._block, self._start = struct.unpack_from("<IIII", body)
        self._erase(self._start, size)
        self._inflate, self._seq, self._left = zlib.decompressobj(), -1, size
        self._answer(op)

    def _data(self, op, body):
        length, seq = struct.unpack_from("<II", body)
        data = body[16 : 16 + length]
        if seq > self._seq:  # one that is sent again has been obeyed
            self._seq = seq
            if op == 0x11:
                data = self._inflate.decompress(data)
            self._program(self._start, data[: self._left] if op == 0x11 else data)
            self._start += len(data)
        self._answer(op)

    def _end(self, op, body):
        self._answer(op)
        if struct.unpack("<I", body)[0] == 0:
            self._run()

    def _md5(self, op, body):
        start, size = struct.unpack_from("<II", body)
        digest = hashlib.md5(self.flash[start : start + size])
        stub = self._mode == "stub"
        self._answer(op, digest.digest() if stub else digest.hexdigest().encode())

    def _read_slow(self, op, body):
        start, size = struct.unpack_from("<II", body)
        self._answer(op, bytes(self.flash[start : start + size]).ljust(64, b"\0"))

    def _read(self, op, body):
        start, size, block, _ = struct.unpack("<IIII", body)
        data = bytes(self.flash[start : start + size])
        self._answer(op)
        for at in range(0, size, block):
            self._send_frame(data[at : at + block])
            while self._frame() is None:
                if self._over.is_set():
                    return
        self._send_frame(hashlib.md5(data).digest())

    def _erase_all(self, op, body):
        self._erase(0, len(self.flash))
        self._answer(op)

    def _erase_region(self, op, body):
        self._erase(*struct.unpack("<II", body))
        self._answer(op)

    def _run_user_code(self, op, body):
        self._run()

    _STUB_ONLY = (0xD0, 0xD1, 0xD2, 0xD3)
    _HANDLERS = {
        0x02: _begin, 0x03: _data, 0x04: _end, 0x05: _memory, 0x06: _memory_end, 0x07: _memory,
        0x08: _sync, 0x09: _write_reg, 0x0A: _read_reg, 0x0B: _accept_it, 0x0D: _accept_it,
        0x0E: _read_slow, 0x0F: _accept_it, 0x10: _begin, 0x11: _data, 0x12: _end, 0x13: _md5,
        0x14: _security_info, 0xD0: _erase_all, 0xD1: _erase_region, 0xD2: _read,
        0xD3: _run_user_code,
    }  # fmt: skip
