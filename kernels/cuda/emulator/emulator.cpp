#include "emulator/emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emu {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xA5;

#if defined(__x86_64__)
// Saves the callee-saved registers on the running stack, stores its pointer to *from and goes on
// from the stack `to`.
extern "C" void fae_emu_switch(void** from, void* to);
asm(R"(
.text
.globl fae_emu_switch
.hidden fae_emu_switch
.type fae_emu_switch, @function
fae_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fae_emu_switch, .-fae_emu_switch
)");
using Context = void*;
#else
using Context = ucontext_t;
#endif

// Unpoisons the stacks: fibers do not return from their first function, so that AddressSanitizer
// still guards its frame when the memory serves another fiber or, unmapped, another purpose.
void forget_frames(unsigned char* stacks, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stacks, bytes);
#else
  static_cast<void>(stacks);
  static_cast<void>(bytes);
#endif
}

struct Fiber {
  Context context{};
  Dim3 index;
  unsigned char* stack = nullptr;
  bool finished = false;
  // The fiber waits until *waits_on, which counts complete barriers or warp meetings, is waits_for.
  const std::uint64_t* waits_on = nullptr;
  std::uint64_t waits_for = 0;
};

struct Warp {
  std::uint64_t slots[2][32] = {};
  int arrived = 0;
  std::uint64_t complete = 0;
};

class Block {
 public:
  Block(Dim3 size, Dim3 grid, std::size_t shared_bytes, const std::function<void()>& kernel)
      : size_(size), grid_(grid), kernel_(kernel), shared_bytes_(shared_bytes) {
    threads_ = size.x * size.y * size.z;
    if (threads_ == 0 || threads_ > 1024 || threads_ % 32 != 0) {
      throw std::runtime_error("emulated block size must be a multiple of 32 up to 1024");
    }
    fibers_.resize(threads_);
    warps_.resize(threads_ / 32);
    stacks_ =
        static_cast<unsigned char*>(mmap(nullptr, kStackBytes * threads_, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks_ == MAP_FAILED) throw std::runtime_error("no memory for emulated threads' stacks");
    shared_.reset(new (std::align_val_t{128}) unsigned char[shared_bytes + kGuardBytes]);
  }
  ~Block() {
    forget_frames(stacks_, kStackBytes * threads_);
    munmap(stacks_, kStackBytes * threads_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run(Dim3 index);
  bool advance(const std::vector<unsigned>& threads);

  void yield_until(const std::uint64_t* counter, std::uint64_t value) {
    Fiber& me = fibers_[current_];
    me.waits_on = counter;
    me.waits_for = value;
    to_scheduler(false);
  }
  void to_scheduler(bool last);

  void barrier() {
    const std::uint64_t target = barrier_complete_ + 1;
    if (++barrier_arrived_ == threads_) {
      barrier_arrived_ = 0;
      barrier_complete_ = target;
    }
    yield_until(&barrier_complete_, target);
  }

  // Leaves a word for the other lanes and waits for theirs; returns the buffer they left them in,
  // valid until the lane's next meeting but one.
  const std::uint64_t* meet(std::uint64_t mine) {
    Warp& warp = warps_[current_ / 32];
    const std::uint64_t target = warp.complete + 1;
    std::uint64_t* slots = warp.slots[target & 1];
    slots[current_ % 32] = mine;
    if (++warp.arrived == 32) {
      warp.arrived = 0;
      warp.complete = target;
    }
    yield_until(&warp.complete, target);
    return slots;
  }

  Dim3 size_, grid_, index_;
  const std::function<void()>& kernel_;
  unsigned threads_ = 0;
  unsigned current_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  unsigned char* stacks_ = nullptr;
  struct AlignedDelete {
    void operator()(unsigned char* p) const { operator delete[](p, std::align_val_t{128}); }
  };
  std::unique_ptr<unsigned char[], AlignedDelete> shared_;
  std::size_t shared_bytes_;
  std::uint64_t barrier_complete_ = 0;
  unsigned barrier_arrived_ = 0;
  Context scheduler_{};
  std::exception_ptr error_;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
#endif
};

thread_local Block* running = nullptr;
std::uint64_t total_meetings = 0;

void fiber_main() {
  Block& block = *running;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_stack_, &block.scheduler_stack_bytes_);
#endif
  try {
    block.kernel_();
  } catch (...) {
    block.error_ = std::current_exception();
  }
  block.fibers_[block.current_].finished = true;
  block.to_scheduler(true);
}

void start(Fiber& fiber) {
#if defined(__x86_64__)
  // The stack as fae_emu_switch leaves it: six registers, then the address to return to. The
  // padding keeps the stack 16-byte aligned at fiber_main's entry.
  auto* top = reinterpret_cast<std::uint64_t*>(fiber.stack + kStackBytes);
  *--top = 0;
  *--top = reinterpret_cast<std::uint64_t>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber.context = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
#endif
}

void switch_context(Context& from, Context& to) {
#if defined(__x86_64__)
  fae_emu_switch(&from, to);
#else
  swapcontext(&from, &to);
#endif
}

void Block::to_scheduler(bool last) {
  Fiber& me = fibers_[current_];
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake, scheduler_stack_, scheduler_stack_bytes_);
  switch_context(me.context, scheduler_);
  __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_stack_bytes_);
#else
  static_cast<void>(last);
  switch_context(me.context, scheduler_);
#endif
}

std::uint64_t next_random(std::uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

template <typename T>
void arrange(std::vector<T>& list, std::uint64_t& random) {
  const Order order = schedule().order;
  if (order == Order::kBackward) std::reverse(list.begin(), list.end());
  if (order == Order::kShuffled || order == Order::kByWarp) {
    for (std::size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[next_random(random) % i]);
    }
  }
}

// Resumes those of `threads` that can go on, up to where each waits; returns whether there were
// any.
bool Block::advance(const std::vector<unsigned>& threads) {
  bool moved = false;
  for (const unsigned t : threads) {
    Fiber& fiber = fibers_[t];
    if (fiber.finished || (fiber.waits_on != nullptr && *fiber.waits_on < fiber.waits_for))
      continue;
    moved = true;
    current_ = t;
    ++total_meetings;
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, fiber.stack, kStackBytes);
    switch_context(scheduler_, fiber.context);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    switch_context(scheduler_, fiber.context);
#endif
    if (error_) std::rethrow_exception(error_);
  }
  return moved;
}

void Block::run(Dim3 index) {
  index_ = index;
  forget_frames(stacks_, kStackBytes * threads_);
  std::memset(shared_.get(), 0xFF, shared_bytes_);
  std::memset(shared_.get() + shared_bytes_, kGuard, kGuardBytes);
  // The threads that run alternately: all, or those of a warp.
  const bool by_warp = schedule().order == Order::kByWarp;
  std::vector<std::vector<unsigned>> teams(by_warp ? threads_ / 32 : 1);
  for (unsigned t = 0; t < threads_; ++t) {
    Fiber& fiber = fibers_[t];
    fiber = Fiber{};
    fiber.index = Dim3{t % size_.x, t / size_.x % size_.y, t / size_.x / size_.y};
    fiber.stack = stacks_ + t * kStackBytes;
    start(fiber);
    teams[by_warp ? t / 32 : 0].push_back(t);
  }
  warps_.assign(warps_.size(), Warp{});
  barrier_arrived_ = 0;
  std::uint64_t random = schedule().seed * 0x9E3779B97F4A7C15ull + 0x2545F4914F6CDD1Dull + index.x;
  Block* before = running;
  running = this;
  for (std::vector<unsigned>& team : teams) arrange(team, random);
  try {
    for (bool moved = true; moved;) {
      moved = false;
      if (by_warp) arrange(teams, random);
      for (const std::vector<unsigned>& team : teams) {
        while (advance(team)) {
          moved = true;
          if (!by_warp) break;
        }
      }
      if (schedule().order == Order::kShuffled) arrange(teams[0], random);
    }
    for (const Fiber& fiber : fibers_) {
      if (!fiber.finished) {
        throw std::runtime_error("a barrier or warp intrinsic was not reached by all threads");
      }
    }
  } catch (...) {
    running = before;
    throw;
  }
  running = before;
  for (std::size_t i = 0; i < kGuardBytes; ++i) {
    if (shared_[shared_bytes_ + i] != kGuard) {
      throw std::runtime_error("shared memory was written past its end, at byte " +
                               std::to_string(i) + " behind it");
    }
  }
}

void require_full_warp(unsigned mask) {
  if (mask != 0xffffffffu) throw std::runtime_error("a warp intrinsic must name all 32 lanes");
}

}  // namespace

Schedule& schedule() {
  static Schedule the;
  return the;
}

std::uint64_t meetings() { return total_meetings; }
const Dim3& thread_index() { return running->fibers_[running->current_].index; }
const Dim3& block_index() { return running->index_; }
const Dim3& block_size() { return running->size_; }
const Dim3& grid_size() { return running->grid_; }
unsigned char* dynamic_shared() { return running->shared_.get(); }
void block_barrier() { running->barrier(); }

std::uint64_t warp_exchange(unsigned mask, std::uint64_t mine, int source) {
  require_full_warp(mask);
  return running->meet(mine)[source];
}

unsigned warp_ballot(unsigned mask, bool mine) {
  require_full_warp(mask);
  const std::uint64_t* slots = running->meet(mine ? 1 : 0);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<unsigned>(slots[i]) << i;
  return bits;
}

void warp_barrier(unsigned mask) {
  require_full_warp(mask);
  running->meet(0);
}

void launch(Dim3 grid, Dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel) {
  std::vector<Dim3> blocks;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) blocks.push_back(Dim3{x, y, z});
    }
  }
  std::uint64_t random = schedule().seed + 0x2545F4914F6CDD1Dull;
  arrange(blocks, random);
  Block runner(block, grid, shared_bytes, kernel);
  for (const Dim3& index : blocks) runner.run(index);
}

}  // namespace emu
