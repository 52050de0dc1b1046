// std::condition_variable::wait() of GCC 11 and older, for RocksDB, which is part of the program: where GCC 12 compiled
// it, it asks for a symbol of GCC 12's libstdc++, and for no other. Every newer libstdc++ has the older one, too.
#include <condition_variable>
#include <mutex>

#if defined(__x86_64__) && defined(__GLIBCXX__)
extern "C" void SlacklineOlderWait(std::condition_variable* self, std::unique_lock<std::mutex>& lock);
__asm__(".symver SlacklineOlderWait,_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

// Hidden from the loader, which would take it for the older one, too.
extern "C" [[gnu::visibility("hidden")]] void SlacklineWait(
    std::condition_variable* self,
    std::unique_lock<std::mutex>& lock) __asm__("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
void SlacklineWait(std::condition_variable* self, std::unique_lock<std::mutex>& lock) {
  SlacklineOlderWait(self, lock);
}
#endif
