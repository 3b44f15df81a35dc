#include "cpu/threads.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace fae::cpu {
namespace {

class Pool {
 public:
  void run(std::int32_t threads, const std::function<void(std::int32_t)>& body) {
    std::int32_t there;  // threads of this round, the caller included
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      start_workers(threads - 1);
      there = std::min(threads, static_cast<std::int32_t>(workers_.size()) + 1);
      body_ = &body;
      wanted_ = there;
      running_ = there - 1;
      ++round_;
    }
    start_.notify_all();
    body(0);
    for (std::int32_t thread = there; thread < threads; ++thread) body(thread);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
  }

  std::mutex& busy() { return busy_; }

 private:
  // As many as asked, or as the system gives: bodies do not wait for each other.
  void start_workers(std::int32_t count) {
    try {
      while (static_cast<std::int32_t>(workers_.size()) < count) {
        const std::int32_t index = static_cast<std::int32_t>(workers_.size()) + 1;
        workers_.emplace_back([this, index, seen = round_] { work(index, seen); });
      }
    } catch (const std::system_error&) {  // there is no further thread to be had
    }
  }

  void work(std::int32_t index, std::uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (index >= wanted_) continue;
      const std::function<void(std::int32_t)>* body = body_;
      lock.unlock();
      (*body)(index);
      lock.lock();
      if (--running_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_;  // held by the caller whose work the pool does
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::vector<std::thread> workers_;
  const std::function<void(std::int32_t)>* body_ = nullptr;
  std::int32_t wanted_ = 0;
  std::int32_t running_ = 0;
  std::uint64_t round_ = 0;
};

// Never destroyed: its threads wait for work until the process ends. A forked child has no threads
// of its parent and gets a pool of its own.
Pool& pool() {
  static std::mutex mutex;
  static Pool* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  if (current == nullptr || owner != getpid()) {
    current = new Pool;
    owner = getpid();
  }
  return *current;
}

}  // namespace

void run_on_threads(std::int32_t threads, const std::function<void(std::int32_t)>& body) {
  if (threads > 1) {
    Pool& shared = pool();
    const std::unique_lock<std::mutex> busy(shared.busy(), std::try_to_lock);
    if (busy.owns_lock()) {
      shared.run(threads, body);
      return;
    }
  }
  for (std::int32_t thread = 0; thread < threads; ++thread) body(thread);
}

}  // namespace fae::cpu
