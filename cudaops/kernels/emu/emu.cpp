#include "emu.h"

#include <cstdarg>
#include <map>
#include <random>
#include <string>
#include <sys/mman.h>

namespace emu {

Thread* self;
uint3 block_id;
dim3 block_dim, grid_dim;
uint8_t* shared;
uint32_t shared_bytes;
Warp warps[64];
Barrier barriers[16];
int threads_in_block;

static const size_t stack_bytes = 256 << 10;
static std::vector<Thread> threads;
static void* scheduler_sp;
static Entry entry;
static const void* params;
static std::mt19937 rng(1);
static std::vector<std::function<void()>> pending;  // bulk copies under way

struct Kernel {
  size_t params;
  Entry entry;
};
static std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> m;
  return m;
}
void add(const char* name, size_t n, Entry e) { kernels()[name] = Kernel{n, e}; }

extern "C" void emu_switch(void** save, void* to);
asm(R"(
.text
.globl emu_switch
emu_switch:
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
)");

void fail(const char* format, ...) {
  va_list a;
  va_start(a, format);
  fprintf(stderr, "emu: block %u thread %d: ", block_id.x, self ? self->index : -1);
  vfprintf(stderr, format, a);
  fprintf(stderr, "\n");
  va_end(a);
  abort();
}

void wait(std::function<bool()> ready) {
  self->ready = std::move(ready);
  emu_switch(&self->sp, scheduler_sp);
}

void later(std::function<void()> what) { pending.push_back(std::move(what)); }

static void land_one() {
  size_t i = rng() % pending.size();
  auto f = std::move(pending[i]);
  pending.erase(pending.begin() + i);
  f();
}

static void fiber() {
  entry(params);
  self->done = true;
  emu_switch(&self->sp, scheduler_sp);
  abort();
}

static void run_block() {
  int n = threads_in_block;
  for (auto& w : warps) w.arrived = 0;
  for (auto& b : barriers) b = Barrier();
  memset(shared, 0xff, shared_bytes);
  for (int i = 0; i < n; i++) {
    Thread& t = threads[i];
    uint8_t* stack = t.stack;
    t = Thread();
    t.stack = stack;
    t.index = i;
    t.tid.x = i % block_dim.x;
    t.tid.y = i / block_dim.x % block_dim.y;
    t.tid.z = i / block_dim.x / block_dim.y;
    t.lane = i % 32;
    t.warp = i / 32;
    void** top = (void**)(stack + stack_bytes - 64);
    *--top = nullptr;
    *--top = (void*)fiber;
    for (int k = 0; k < 6; k++) *--top = nullptr;
    t.sp = top;
  }
  std::vector<int> order((n + 31) / 32);
  for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
  int live = n;
  while (live) {
    bool progress = false;
    std::shuffle(order.begin(), order.end(), rng);
    for (int w : order) {
      bool again = true;
      int spins = (int)(rng() % 4) + 1;  // how far a warp may run ahead of the others
      while (again && spins--) {
        again = false;
        for (int i = w * 32; i < n && i < w * 32 + 32; i++) {
          Thread& t = threads[i];
          if (t.done || (t.ready && !t.ready())) continue;
          t.ready = nullptr;
          self = &t;
          emu_switch(&scheduler_sp, t.sp);
          progress = again = true;
          if (t.done) live--;
        }
      }
    }
    if (!pending.empty() && (!progress || rng() % 64 == 0)) {
      land_one();
      progress = true;
    }
    if (!progress) {
      fprintf(stderr, "emu: block %u hangs; waiting threads:", block_id.x);
      for (int i = 0; i < n; i++)
        if (!threads[i].done) fprintf(stderr, " %d", i);
      fprintf(stderr, "\n");
      abort();
    }
  }
  self = nullptr;
  if (!pending.empty()) fail("the block ended with %zu bulk copies under way", pending.size());
}

}  // namespace emu

extern "C" size_t emu_params(const char* name) {
  auto it = emu::kernels().find(name);
  return it == emu::kernels().end() ? (size_t)-1 : it->second.params;
}

extern "C" void emu_seed(unsigned seed) { emu::rng.seed(seed); }

extern "C" int emu_launch(const char* name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned shared_bytes, const void* params) {
  using namespace emu;
  auto it = kernels().find(name);
  if (it == kernels().end()) return 1;
  if (bx % 32 || bx > 1024) return 2;
  static uint8_t* region;
  if (!region) {
    region = (uint8_t*)mmap(nullptr, 1024 * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    threads.resize(1024);
    for (int i = 0; i < 1024; i++) threads[i].stack = region + i * stack_bytes;
    emu::shared = (uint8_t*)aligned_alloc(1024, 256 << 10);
  }
  block_dim = dim3(bx);
  grid_dim = dim3(gx, gy, gz);
  threads_in_block = (int)bx;
  emu::shared_bytes = shared_bytes;
  entry = it->second.entry;
  emu::params = params;
  std::vector<unsigned> order(gx * gy * gz);
  for (size_t i = 0; i < order.size(); i++) order[i] = (unsigned)i;
  std::shuffle(order.begin(), order.end(), rng);
  for (unsigned i : order) {
    block_id.x = i % gx;
    block_id.y = i / gx % gy;
    block_id.z = i / gx / gy;
    run_block();
  }
  return 0;
}
