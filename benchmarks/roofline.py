"""Memory bandwidth of this machine, measured: what every memory-bound number is judged against.

    python benchmarks/roofline.py

CPU: read bandwidth of `threads` threads, the fastest of several plain readers over 512 MB.
GPU: device-to-device copy bandwidth, bytes read plus bytes written.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time

import torch

CPU_BYTES = 512 << 20


def _median_seconds(function, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def cpu_read_bandwidth(threads: int, size: int = CPU_BYTES, repeats: int = 5) -> float:
    """Bytes a second that `threads` threads read from memory, the fastest reader's median."""
    data = torch.ones(size // 4)
    libc = ctypes.CDLL(None)
    libc.memchr.restype = ctypes.c_void_p
    libc.memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    share = size // threads

    def scan(part: int) -> None:  # the byte 1 does not occur in float32 ones; ctypes frees the GIL
        libc.memchr(data.data_ptr() + part * share, 1, share)

    def scan_all() -> None:
        workers = [threading.Thread(target=scan, args=(part,)) for part in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        seconds = min(
            _median_seconds(reader, repeats) for reader in (data.sum, data.amax, scan_all)
        )
    finally:
        torch.set_num_threads(before)
    return size / seconds


def gpu_copy_bandwidth(size: int = 4 << 30, repeats: int = 20) -> float:
    """Bytes a second, read plus written, of a large copy within the current GPU's memory."""
    source = torch.randint(256, (size,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return 2 * size / statistics.median(times[3:])


if __name__ == "__main__":
    for count in sorted({1, 2, torch.get_num_threads()}):
        print(f"CPU read, {count} threads: {cpu_read_bandwidth(count) / 1e9:.1f} GB/s")
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        print(f"{name} copy, read plus written: {gpu_copy_bandwidth() / 1e9:.0f} GB/s")
