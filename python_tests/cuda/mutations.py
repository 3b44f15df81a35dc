"""Shows how tight the net of the emulated tests is by breaking the kernels, one place at a time.

    python python_tests/cuda/mutations.py [--only TEXT] [--table FILE] [--seconds N]

Every barrier is removed in turn, and the edits of EDITS shift an index, drop a bound or a rule. All
mutants are built at once, in a copy of the sources in which each place asks a switch whether it is
the broken one; then each is switched on in a process of its own that must fail a test: of
test_paths.py, else of the contract. Prints a table (MUTANTS.md holds the last one) and fails where
a mutant survives that EQUIVALENT does not explain.

With --table, rows go to a file, and mutants that have one there are not run again: a run may be cut
into parts of --seconds each.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import emulator

sys.path.append(str(Path(__file__).resolve().parents[1]))

import mutants

ROOT = emulator.ROOT
BARRIER = re.compile(
    r"^(\s*)((?:part\.)?(?:team(?:\(\))?\.)?(?:sync\(\)|__syncthreads\(\)|__syncwarp\(\)));\s*$"
)
FUNCTION = re.compile(
    r"^ *(?:__host__ )?(?:FAE_DEV|FAE_HD|FAE_NOINLINE|__global__|inline)[^;=(]*?(\w+)\("
)
SWITCH = """
namespace emu {
// The mutant that is switched on; see python_tests/cuda/mutations.py.
inline int active_mutant = -1;
inline bool mutant(int number) { return active_mutant == number; }
}  // namespace emu
"""
SETTER = """
  m.def("set_mutant", [](int number) { emu::active_mutant = number; });
"""

# File (and function, where several have such a line), text that one line has, an expression there,
# and what it becomes.
EDITS: list[tuple[str, str, str, str]] = [
    ("sort.cuh", "mine = (mine > other)", "mine > other", "!keep_larger"),
    ("sort.cuh", "mine = (mine > other)", "keep_larger", "true"),
    ("sort.cuh", "const bool swap = a < b", "a < b", "a > b"),
    ("sort.cuh", "segment < count && i < n) v[e]", "i < n", "i < n - 1"),
    ("sort.cuh", "ties |= 1u << e", "1u << e", "0u"),
    ("sort.cuh", "team.lane() == 0 || ((v[0]", "team.lane() == 0", "false"),
    ("sort.cuh", "wrong = wrong ||", "a < b", "false"),
    ("sort.cuh", "if (a < b) {", "a < b", "a <= b"),
    ("sort.cuh", "if (a > b || (a == b", "i < j", "i > j"),
    ("sort.cuh", "if (b < m) order_memory", "b < m", "b < m - 1"),
    ("sort.cuh", "const bool flip = j == k >> 1;", "j == k >> 1", "false"),
    ("sort.cuh", "if (first[middle] >= second", "first[middle] >= second[count - 1 - middle]",
     "first[middle] > second[count - 1 - middle]"),
    ("sort.cuh", "const int count = left < kTilePairs", "left < kTilePairs", "true"),
    ("sort.cuh", "i < own ? run + before", "i < own", "i <= own"),
    ("sort.cuh", "a < own && (b >= count ||", "b >= count", "false"),
    ("sort.cuh", "a < own && (b >= count ||", "pairs.keys[a] >= pairs.keys[b]",
     "pairs.keys[a] > pairs.keys[b]"),
    ("sort.cuh", "i < start + each && i < count", "i < count", "true"),
    ("sort.cuh", "(merge_passes(n) - pass) % 2 == 0", "(merge_passes(n) - pass)",
     "(merge_passes(n) - pass + 1)"),
    ("sweep.cuh", "} else if (pass < merge_passes(n))", "pass < merge_passes(n)", "true"),
    ("sweep.cuh", "if (task < launch.R && sorts_keys", "sorts_keys(launch.rankings[task])", "true"),
    ("sweep.cuh", "if (launch.stage == kLongMerge && width", "width >= launch.counters->longest",
     "2 * width >= launch.counters->longest"),
    ("scan.cuh", "(m == 0 && c < y)));", "m == 0 && c < y", "false"),
    ("scan.cuh", "near = near || (c != y && fabs(m) < tolerance);", "fabs(m) < tolerance", "false"),
    ("scan.cuh:scan_classes", "static_cast<int>(order[launder(keep)", "n - 1 - t", "t"),
    ("scan.cuh", "k < chunk * active", "k < chunk * active", "k <= chunk * active"),
    ("scan.cuh", "const bool full = t == n - 1;", "t == n - 1", "t == n"),
    ("scan.cuh", "const bool flips = !full &&", "f.bias_label != y", "left"),
    ("scan.cuh", "flips != first_wins &&", "!first_wins || event < 0", "true"),
    ("scan.cuh", "const int from = event_t + 1", "event_t + 1", "event_t"),
    ("scan.cuh", "f.underflow ? sums.rescale", "f.underflow", "false"),
    ("scan.cuh", "if (!f.finite && v.bad[i] != 0)", "v.bad[i] != 0", "false"),
    ("scan.cuh", "const bool lost = sums.bad > 0", "sums.bad > 0", "false"),
    ("math.h", "if (x2 < 0.0025)", "x2 < 0.0025", "true"),
    ("math.h", "FAE_HD double kl_term", "log_q - log_p", "log_q"),
    ("scan.cuh", "classes[j] = v.C == 1 ?", "other >= y ? 1 : 0", "0"),
    ("scan.cuh", "first + j < v.C - 1 ?", "first + j < v.C - 1", "first + j < v.C - 3"),
    ("scan.cuh", "below = below | (margins[j] < 0)", "classes[j] < y", "false"),
    ("scan.cuh", "near = near | (fabs(margins[j])", "fabs(margins[j]) < tolerance", "false"),
    ("scan.cuh", "const bool flip = survive ? below", "empty_flips", "true"),
    ("scan.cuh", "begin < n && end == n) flips", "end == n", "false"),
    ("scan.cuh", "event < 0 && empty_flips) event = -1", "empty_flips", "false"),
    ("scan.cuh", "for (int t = event + 1 > begin", "event + 1 > begin", "event > begin"),
    ("scan.cuh", "if (t > event) break;", "t > event", "t >= event"),
    ("scan.cuh:scan_short", "survives = survives || v.a", "v.a[item(t)] > 0", "true"),
    ("scan.cuh:scan_short", "close <= event && close < n", "close <= event", "true"),
    ("scan.cuh", "return chunk < 8 ? 8 : chunk;", "chunk < 8 ? 8 : chunk", "chunk"),
    ("scan.cuh", "return chunk <= kMostRanks ?", "chunk <= kMostRanks", "true"),
    ("facts.cuh", "return chunk < 8 ? 8 : chunk;", "chunk < 8", "false"),
    ("facts.cuh", "const int end = begin + chunk < m", "begin + chunk < m", "true"),
    ("facts.cuh", "if (i < 0 || i >= v.n)", "i >= v.n", "i > v.n"),
    ("facts.cuh", "if (i < 0 || i >= v.n)", "i < 0", "false"),
    ("facts.cuh", "wrong = wrong || (atomicOr(&marks", "atomicOr(&marks[i >> 5], bit)", "0u"),
    ("facts.cuh", "wrong = wrong || v.attention(i) < 0", "v.attention(i) < 0", "false"),
    ("facts.cuh", "if (values[c] > values[best])", "values[c] > values[best]",
     "values[c] >= values[best]"),
    ("facts.cuh", "const bool lost = is_nan(e)", "e == infinity()", "false"),
    ("facts.cuh", "> kUnderflowSpan;", "kUnderflowSpan", "1000.0"),
    ("facts.cuh", "f.underflow ? v.score(i) > -infinity() : w > 0", "f.underflow", "false"),
    ("facts.cuh", "if (c != y && fabs(v.margin[c])", "c != y", "true"),
    ("facts.cuh", "f.tolerance = kTieTolerance *", "largest_bias", "0.0"),
    ("facts.cuh", "p.weights[v.t0 + i] =", "(v.bad[i] & 2) != 0", "v.bad[i] != 0"),
    ("facts.cuh", "write_real(p.logits", "f.finite", "true"),
    ("facts.cuh", "status | (launch.accumulate", "launch.accumulate", "false"),
    ("rankings.cuh", "safe = a < 0.5 * f.mass", "a < 0.5 * f.mass", "true"),
    ("rankings.cuh", "rounding < kSafeError * others", "rounding < kSafeError * others", "true"),
    ("rankings.cuh", "safe = c == y || fabs(m) >=", "fabs(m) >= f.tolerance * others", "true"),
    ("rankings.cuh", "kl += kl_term(exp(down)", "log_z", "0.0"),
    ("rankings.cuh", "write_real(p.single_kl, kDouble, v.t0 + i, kl", "kl > 0", "true"),
    ("rankings.cuh", "if (k > 0 && (margin", "k > 0", "k >= 0"),
    ("rankings.cuh", "(margin == 0 && c < y))) flip", "c < y", "c > y"),
    ("rankings.cuh", "if (fabs(margin) < f.tolerance * mass) near", "f.tolerance * mass", "0.0"),
    ("rankings.cuh", "if (over + size * t < needed)", "size * t", "0 * t"),
    ("rankings.cuh", "flip == m.size && c < m.label", "c < m.label", "false"),
    ("rankings.cuh", "if (c == f.label) return -1;", "c == f.label", "false"),
    ("rankings.cuh", "step - 1 < m.runner_up ?", "step - 1 < m.runner_up", "step < m.runner_up"),
    ("rankings.cuh", "if (v.C == 1) return 1;", "1", "2"),
    ("rankings.cuh", "if (!f.finite || !is_positive", "!is_positive(v, f, i)", "false"),
    ("rankings.cuh", "taken[i] != 0) continue;", "taken[i] != 0", "false"),
    ("rankings.cuh", "const bool heavy = w > 0.5", "w > 0.5 * mass", "false"),
    ("rankings.cuh", "item = team.min(min_lead == first", "min_lead == first", "true"),
    ("rankings.cuh", "if (j == i) continue;", "j == i", "false"),
    ("rankings.cuh", "v.g[i] - (others > 0 ?", "others > 0", "true"),
    ("project.cuh", "if (i >= rows.n || c >= rows.C) return;", "i >= rows.n", "i > rows.n"),
    ("project.cuh", "if (i >= rows.n || c >= rows.C) return;", "c >= rows.C", "c > rows.C"),
    ("project.cuh", "if (index < last) write", "index < last", "true"),
    ("project.cuh", "for (int d = q * kVec; d < D; d +=", "d < D", "d < D - 1"),
    ("project.cuh", "for (int d = q * kVec; d < D; d +=", "q * kVec", "q * kVec + 1"),
    ("project.cuh:project_tile", "i = i < rows.n ? i : rows.n - 1;", "i < rows.n", "i <= rows.n"),
    ("project.cuh", "(c0 + c < rows.C ? c0 + c", "c0 + c < rows.C", "c0 + c <= rows.C"),
    ("project.cuh", "if (!is_finite(rounded)) rows.bad", "!is_finite(rounded)", "false"),
    ("project.cuh", "square > 1e-25 && square < 1e35", "square > 1e-25", "true"),
    ("project.cuh", "rows.D > kFloatSpan * rows.lanes", "kFloatSpan", "16 * kFloatSpan"),
    ("sweep.cuh", "return t0 < 0", "t0 < 0", "false"),
    ("sweep.cuh", "return t0 < 0", "t1 > p.T", "false"),
    ("sweep.cuh", "return t0 < 0", "t1 < t0", "false"),
    ("sweep.cuh", "b == p.B - 1 && t1 != p.T", "t1 != p.T", "false"),
    ("sweep.cuh", "if (team.make_uniform((p.status", "(p.status[b] & kInvalid) != 0", "false"),
    ("sweep.cuh", "if (team.make_uniform((p.status", "!is_broken(p, b, t0, t1)", "true"),
    ("sweep.cuh", "if (at >= (big ?", "(big ? counters->big : counters->mid)",
     "(big ? counters->big : counters->mid) - 1"),
    ("sweep.cuh", "team.rank < launch.grain && b <", "b < launch.p.B", "b <= launch.p.B"),
    ("sweep.cuh", "broken = at >= static_cast", "at", "0ull"),
    ("sweep.cuh", "v.bad[i] = bad[i]", "v.n", "0"),
    ("sweep.cuh", "if (m.sorted != winner)", "m.sorted != winner", "false"),
    ("sweep.cuh", "threadIdx.x == 0 && state.loop.near", "state.loop.near != 0", "false"),
    ("sweep.cuh", "s.loop.near != 0, kNearTie", "s.loop.near != 0", "false"),
    ("layout.cuh", "l.cs = static_cast", "(C | 1)", "(C - 1)"),
    ("layout.cuh", "l.s = reserve", "items * l.cs * real_bytes", "items * l.cs * real_bytes - 16"),
    ("layout.cuh", "l.sums = reserve", "group_words(C) * 8", "group_words(C) * 4"),
    ("layout.cuh", "return P > 32 * each ?", "32 * each", "64 * each"),
    ("team.cuh:prefix_sum", "if (lane() >= o) up +=", "lane() >= o", "true"),
    ("team.cuh", "w > warp(); --w", "w > warp()", "w > warp() + 1"),
    ("pack.cuh", "const bool taken = mine && end <= l.rows", "end <= l.rows", "true"),
    ("pack.cuh", "if (team.rank >= o) end += below", "team.rank >= o", "true"),
    ("pack.cuh", "state.loop.packable = left & ~all", "left & ~all", "0u"),
    ("pack.cuh", "bad[i] = 0;", "0", "1"),
    ("pack.cuh", "v[i] = i < n ? x[i] : 0.0", "i < n", "i < n - 1"),
    ("pack.cuh", "const int half = n < 8", "n < 8 ? n : 8", "n"),
    ("pack.cuh", "wrong = wrong || is_nan(load_real",
     "is_nan(load_real(ranking.data, ranking.dtype, v.t0 + i))", "false"),
    ("pack.cuh", "seen != (1u << v.n) - 1u", "seen != (1u << v.n) - 1u", "false"),
    ("pack.cuh", "special = special || bad[i] != 0", "bad[i] != 0", "false"),
    ("pack.cuh", "special = special || bad[i] != 0", "is_nan(e)", "false"),
    ("pack.cuh", "special = special || bad[i] != 0", "e < 0", "false"),
    ("pack.cuh", "top - bottom > kUnderflowSpan", "kUnderflowSpan", "1000.0"),
    ("pack.cuh", "if (!is_finite(bias))", "!is_finite(bias)", "false"),
    ("pack.cuh", "if (c == 0 || logit > highest)", "logit > highest", "logit >= highest"),
    ("pack.cuh", "v.log_prob[c] -= log_z", "log_z", "0.0"),
    ("pack.cuh", "const int j = sizeof(S) == 8", "sizeof(S) == 8", "true"),
    ("pack.cuh", "const int j = sizeof(S) == 8", "C - 2 - k", "k"),
    ("pack.cuh", "if (fabs(margin) < slot.tolerance) slot", "slot.tolerance", "0.0"),
    ("pack.cuh", "if (j == 0 || margin < min_margin)", "margin < min_margin",
     "margin <= min_margin"),
    ("pack.cuh", "if (j == i) continue;", "j == i", "false"),
    ("pack.cuh", "v.g[i] - (others > 0 ?", "others > 0", "true"),
    ("pack.cuh", "others += j == i ? 0.0", "j == i", "false"),
    ("pack.cuh", "sum += j == i ? 0.0", "j == i", "j < 0"),
    ("pack.cuh", "if (!(v.a[i] > 0)) return 0;", "!(v.a[i] > 0)", "false"),
    ("pack.cuh", "row == -v.C ? last", "row == -v.C", "false"),
    ("pack.cuh", "(w[k] ^ w[k - 1]) <= kLow", "(w[k] ^ w[k - 1]) <= kLow", "false"),
    ("pack.cuh", ">= key) break;", "packed_word(v, stream, v.item(to - 1)) >= key",
     "packed_word(v, stream, v.item(to - 1)) > key"),
    ("pack.cuh", "bound[j] = tile + j < y", "tile + j < y", "false"),
    ("pack.cuh", "near = near | (fabs(sums[j]) < tolerance)", "fabs(sums[j]) < tolerance", "false"),
    ("pack.cuh", "empty_flips) & (t < n - 1)", "t < n - 1", "t < n"),
    ("pack.cuh", "removed = (keep ? found", "keep ? found : !flips_here", "!flips_here"),
    ("pack.cuh", "if (event < 0 && !empty_flips)", "!empty_flips", "true"),
    ("pack.cuh", "if ((nears & counted) != 0)", "(nears & counted) != 0", "nears != 0"),
    ("pack.cuh", "(alive >> event & 1u) != 0", "(alive >> event & 1u) != 0", "true"),
    ("pack.cuh", "for (int t = 0; t <= event; ++t)", "t <= event", "t < event"),
    ("pack.cuh", "if (k > 0 && (margin < 0", "k > 0", "k >= 0"),
    ("pack.cuh", "if (k > 0 && (margin < 0", "column < y", "column > y"),
    ("pack.cuh", "slot.tolerance * mass) near = k", "slot.tolerance * mass", "0.0"),
    ("pack.cuh", "if (flip < slot.size)", "flip < slot.size", "flip <= slot.size"),
    ("pack.cuh", "if (slot.nearest <=", "found ? size : slot.positives", "n"),
    ("pack.cuh", "flag(v.slot.near_tie != 0", "v.slot.near_tie != 0", "false"),
    ("project.cuh", "D - d < kChunk ?", "D - d < kChunk", "false"),
    ("project.cuh", "load(launder(d) + kChunk)", "kChunk", "0"),
    ("project.cuh", "if (c0 + c < rows.C) s[c0", "c0 + c < rows.C", "true"),
    ("project.cuh", "if (!finite) rows.bad", "!finite", "false"),
    ("project.cuh", "squares > 1e-25f && squares", "squares > 1e-25f", "true"),
    ("project.cuh:project_tile", "if (rows.items != nullptr)", "rows.items != nullptr", "false"),
    ("project.cuh", "room >= size / 32 * staged", "room >= size / 32 * staged", "true"),
    ("project.cuh", "rows.n <= kMostPacked ?", "rows.n <= kMostPacked", "false"),
    ("scan.cuh", "take_smaller(min_sum, flip_label, saved[c]", "saved[c] + after[c]", "after[c]"),
    ("scan.cuh", "if (event == n && stays", "event == n", "true"),
    ("scan.cuh", "if (close == n && nears", "close == n", "true"),
    ("scan.cuh", ": empty_flips) & (t < n - 1)", "t < n - 1", "t < n"),
    ("scan.cuh", "if (event == -2 && empty_flips)", "empty_flips", "false"),
    ("scan.cuh", "bool survives = saved_mass > 0", "saved_mass > 0", "false"),
    ("scan.cuh", "class_sums(team, v, event + 1", "event + 1", "event"),
    ("scan.cuh", "next[tile.classes[j]] = before + step_sum", "before + step_sum", "before"),
    ("team.cuh", "if (w == warp()) before", "w == warp()", "w == warp() + 1"),
    ("sweep.cuh", "if (left > 0) {", "left > 0", "left >= 0"),
    ("sweep.cuh", "number -= (left +", "(number + 1) * items - 1", "(number + 1) * items"),
    ("sweep.cuh", "loop.count = launch.facts", "launch.facts[tile.slot].invalid", "false"),
    ("pooled.cu", "if (m < 0 || m >= p.M || d >= p.D) return;", "m >= p.M", "m > p.M"),
    ("pooled.cu", "if (m < 0 || m >= p.M || d >= p.D) return;", "d >= p.D", "d > p.D"),
    ("pooled.cu", "first_point + n < p.point_begin", "first_point + n < p.point_begin",
     "first_point + n <= p.point_begin"),
    ("pooled.cu", "i >= 0 && i < n;", "i < n", "i <= n"),
]  # fmt: skip

# Mutants that no test can tell from the original, and why.
ROUNDING = "equivalent: other partial sums, the same results but for rounding"
MEETING = (
    "equivalent here: beside it stands a vote, a shuffle or a barrier, which brings the threads of "
    "the emulator together too, while the hardware orders memory by barriers alone"
)
EQUIVALENT: dict[str, str] = {
    "rankings.cuh, erase_singles: `__syncwarp()`, number 2, removed": MEETING,
    "rankings.cuh, find_greedy: `team.sync()`, number 2, removed": MEETING,
    "sweep.cuh, init_instance: `team.sync()`, number 1, removed": MEETING,
    "sweep.cuh, take_instances: `team.sync()`, number 1, removed": MEETING,
    "pack.cuh, next_pack: `team.sync()`, number 1, removed": MEETING,
    "scan.cuh, scan_classes: `team.sync()`, number 3, removed": MEETING,
    "sweep.cuh, sweep_warps: `team.sync()`, number 2, removed": MEETING,
    "sort.cuh, sort_orders: `team.sync()`, number 2, removed": (
        "equivalent here: swaps of neighbours one after the other are right in any order; at once "
        "they would lose items"
    ),
    "sweep.cuh, sweep_instance: `team().sync()`, number 1, removed": MEETING,
    "sweep.cuh, next_row_tile: `team.sync()`, number 1, removed": (
        "equivalent here: from what it protects next_tile finds the same tile again"
    ),
    "sweep.cuh, sort_next_tile: `pass < merge_passes(n)` becomes `true`": (
        "equivalent: copies a finished order to and fro"
    ),
    "sweep.cuh, sort_next_tile: `sorts_keys(launch.rankings[task])` becomes `true`": (
        "equivalent: sorts what place_orders then replaces"
    ),
    "sweep.cuh, next_single_tile: `launch.facts[tile.slot].invalid` becomes `false`": (
        "equivalent: an invalid instance's facts are not finite, for which the same -1 and NaN are "
        "written once more"
    ),
    "scan.cuh, scan_chunk: `chunk < 8 ? 8 : chunk` becomes `chunk`": ROUNDING,
    "rankings.cuh, erase_singles: `rounding < kSafeError * others` becomes `true`": (
        "equivalent up to some 10^5 items: what is left of a total that cancels is near a tie, and "
        "those are added up again"
    ),
    "project.cuh, project_features: `c0 + c < rows.C` becomes `c0 + c <= rows.C`": (
        "equivalent in its results: reads a row behind the head, for a sum that nobody uses "
        "(AddressSanitizer sees it)"
    ),
}


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    name: str

    @property
    def key(self) -> str:
        """What EQUIVALENT knows it by: lines move."""
        return f"{self.file}, {self.function}: {self.name}"

    @property
    def place(self) -> str:
        """The start of its row."""
        name = self.name.replace("|", chr(92) + "|")
        return f"| `{self.file}` | `{self.function}` | {name}"


def function_of(lines: list[str], at: int) -> str:
    """The function that line `at` is in."""
    for line in reversed(lines[: at + 1]):
        signature = FUNCTION.match(re.sub(r"__launch_bounds__\(\w+\)", "", line))
        if signature:
            return signature[1]
    raise SystemExit(f"no function above {lines[at]}")


def instrument(root: Path) -> list[Mutant]:
    """Put a switch at every place of the sources in `root`; their numbers are list positions."""
    found: list[Mutant] = []
    folder = root / "kernels" / "cuda"
    shared = root / "csrc" / "include" / "fastattnerase" / "math.h"
    files = {path.name: path for path in [*sorted(folder.glob("*.cu*")), shared]}
    lines = {name: path.read_text().splitlines() for name, path in files.items()}
    edits: dict[tuple[str, int, str], list[tuple[int, str]]] = {}
    for where, text, old, new in EDITS:
        name, _, inside = where.partition(":")
        at = [i for i, line in enumerate(lines[name]) if text in line]
        if inside:
            at = [i for i in at if function_of(lines[name], i) == inside]
        if len(at) != 1 or old not in lines[name][at[0]]:
            raise SystemExit(f"{where}: {len(at)} lines have {text!r} with {old!r}; update EDITS")
        edits.setdefault((name, at[0], old), []).append((len(found), new))
        function = function_of(lines[name], at[0])
        found.append(Mutant(name, function, f"`{old}` becomes `{new}`"))
    # From the right, so that places on one line stay where they are.
    spots = [(name, line, lines[name][line].index(old), old) for name, line, old in edits]
    for name, line, column, old in sorted(spots, reverse=True):
        text = old
        for number, new in edits[name, line, old]:
            text = f"(emu::mutant({number}) ? ({new}) : ({text}))"
        before = lines[name][line]
        lines[name][line] = before[:column] + text + before[column + len(old) :]
    for name, all_lines in lines.items():
        for i, line in enumerate(all_lines):
            match = BARRIER.match(line)
            if match:
                function = function_of(all_lines, i)
                barriers = sum(
                    m.file == name and m.function == function and m.name.endswith("removed")
                    for m in found
                )
                all_lines[i] = f"{match[1]}if (!emu::mutant({len(found)})) {match[2]};"
                found.append(
                    Mutant(name, function, f"`{match[2]}`, number {barriers + 1}, removed")
                )
        files[name].write_text("\n".join(all_lines) + "\n")
    places = [mutant.place for mutant in found]
    twice = {place for place in places if places.count(place) > 1}
    if twice:
        raise SystemExit(f"several mutants of one name; tell them apart in EDITS: {twice}")
    shared.write_text(shared.read_text().replace("#pragma once\n", "#pragma once\n" + SWITCH))
    module = folder / "emulator" / "module.cpp"
    head, tail = module.read_text().split("  m.doc() =", 1)
    module.write_text(head + SETTER + "  m.doc() =" + tail)
    return found


def refresh(fresh: Path, source: Path) -> None:
    """Move what differs, so that nothing else is compiled again."""
    for path in fresh.rglob("*"):
        target = source / path.relative_to(fresh)
        if path.is_file() and (not target.exists() or target.read_bytes() != path.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def main() -> None:
    parser = mutants.parser(__doc__.splitlines()[0])
    parser.add_argument("--paths-only", action="store_true", help="without the contract's tests")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutants")
    options = parser.parse_args()
    fresh, source = options.work / "fresh", options.work / "source"
    shutil.rmtree(fresh, ignore_errors=True)
    for folder in ("kernels", "csrc"):
        shutil.copytree(ROOT / folder, fresh / folder)
    found = instrument(fresh)
    refresh(fresh, source)
    emulator.build.__defaults__ = (options.work / "build", source, "")
    module = emulator.module()
    tests = ROOT / "python_tests"
    arguments = ["--backends", "cuda-emulated", str(tests / "cuda" / "test_paths.py")]
    if not options.paths_only:
        # File by file: a run of the whole folder fails where a backend ran nothing in this process.
        arguments += map(str, sorted((tests / "contract").glob("test_*.py")))
    judge = mutants.Judge(
        [mutant.place for mutant in found],
        module.set_mutant,
        {mutant.place: EQUIVALENT[mutant.key] for mutant in found if mutant.key in EQUIVALENT},
        options,
    )
    survivors = mutants.judge_all(judge, arguments)
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
