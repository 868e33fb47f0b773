// Threads that wait for work. Waking one costs a fraction of starting one, and a worker that the machine does not
// let run has claimed nothing, so nobody waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace outspan {

class Pool {
  public:
    // Calls `work()` on this thread and on up to `threads - 1` others, and returns when all that began have ended.
    // A second caller meanwhile works alone. `work` must not throw.
    static void run(int threads, const std::function<void()> &work) {
        if (threads <= 1) return work();
        Pool &pool = instance();
        std::unique_lock<std::mutex> turn(pool.turn_, std::try_to_lock);
        if (!turn.owns_lock()) return work();
        {
            std::lock_guard<std::mutex> lock(pool.mutex_);
            try {
                for (; pool.started_ < threads - 1; ++pool.started_) std::thread(&Pool::serve, &pool).detach();
            } catch (const std::system_error &) {
                // The system gives no more threads: those there are will do.
            }
            pool.work_ = &work;
            pool.wanted_ = threads - 1;
        }
        pool.wake_.notify_all();
        work();
        std::unique_lock<std::mutex> lock(pool.mutex_);
        pool.work_ = nullptr;  // who has not begun by now need not
        pool.idle_.wait(lock, [&pool] { return pool.active_ == 0; });
    }

  private:
    // Never destroyed: its threads sleep until the process ends. A forked child has none of them and starts afresh.
    static Pool &instance() {
        static std::atomic<Pool *> pool{nullptr};
        static std::once_flag once;
        std::call_once(once, [] {
            pool = new Pool;
#if defined(__unix__) || defined(__APPLE__)
            pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
#endif
        });
        return *pool.load();
    }

    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return work_ && wanted_ > 0; });
            const std::function<void()> &work = *work_;
            --wanted_, ++active_;
            lock.unlock();
            work();
            lock.lock();
            if (--active_ == 0) idle_.notify_one();
        }
    }

    std::mutex turn_, mutex_;
    std::condition_variable wake_, idle_;
    const std::function<void()> *work_ = nullptr;
    int started_ = 0, wanted_ = 0, active_ = 0;
};

}  // namespace outspan
