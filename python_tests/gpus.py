"""What the tests know of GPUs: those whose code is built, and the presets of the emulator."""

from __future__ import annotations

from dataclasses import dataclass

RESERVED = 1024  # bytes of shared memory that the system keeps of every block
REGISTERS = 65536  # 32-bit words a multiprocessor, of all of these


@dataclass(frozen=True)
class Gpu:
    """A GPU's limits, from the CUDA programming guide's table of compute capabilities."""

    capability: int  # 90 is 9.0
    multiprocessors: int
    shared: int  # bytes a multiprocessor
    shared_of_block: int  # bytes that a block may ask for
    threads: int  # resident on a multiprocessor
    blocks: int  # resident on a multiprocessor

    @property
    def quarter(self) -> int:
        """Bytes of shared memory for each of four blocks on a multiprocessor."""
        return self.shared // 4 - RESERVED

    def resident(self, registers: int, shared: int, threads: int) -> int:
        """Threads resident at once of a kernel: by registers, shared memory and the limits."""
        # Registers are handed out to warps by eights a thread.
        warps = REGISTERS // (-(-registers // 8) * 8 * 32)
        by_registers = warps * 32 // threads
        by_shared = self.shared // (shared + RESERVED)
        return min(by_registers, by_shared, self.threads // threads, self.blocks) * threads


GPUS = {
    "A100": Gpu(80, 108, 164 * 1024, 163 * 1024, 2048, 32),
    "A10": Gpu(86, 72, 100 * 1024, 99 * 1024, 1536, 16),
    "RTX 4090": Gpu(89, 128, 100 * 1024, 99 * 1024, 1536, 24),
    "H100": Gpu(90, 132, 228 * 1024, 227 * 1024, 2048, 32),
    "B200": Gpu(100, 148, 228 * 1024, 227 * 1024, 2048, 32),
    "RTX 5090": Gpu(120, 170, 100 * 1024, 99 * 1024, 1536, 24),
}
BY_CAPABILITY = {gpu.capability: gpu for gpu in GPUS.values()}
