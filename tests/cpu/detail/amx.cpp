// SPDX-License-Identifier: MIT
// Leave to use tiles of AMX: where the system refuses it or the processor faults, there are none; handlers of
// signals stay the program's.
#include <specula/cpu/detail/amx.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#if SPECULA_X86 && defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <csignal>
#endif

using namespace specula::cpu::detail;

TEST_CASE("the answer stays the same") { CHECK(amx_works() == amx_works()); }

#if SPECULA_X86 && defined(__linux__)

namespace {

void own_handler(int) {}
bool good() { return true; }
bool bad() { return false; }
bool fault() {
  __asm__ volatile("ud2");
  return true;
}

/// Makes the system refuse arch_prctl to this process.
bool refuse_arch_prctl() {
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_arch_prctl},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | 22},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE(
    "an instruction that the processor does not have: false, and the program's handler is there again") {
  struct sigaction installed = {}, before = {}, after = {};
  installed.sa_handler = &own_handler;
  REQUIRE(sigaction(SIGILL, &installed, &before) == 0);
  const bool of_good = without_fault(&good), of_bad = without_fault(&bad), of_fault = without_fault(&fault),
             of_next = without_fault(&good);
  REQUIRE(sigaction(SIGILL, &before, &after) == 0);
  CHECK(of_good);
  CHECK(!of_bad);
  CHECK(!of_fault);
  CHECK(of_next);
  const bool kept = after.sa_handler == &own_handler;
  CHECK(kept);
}

TEST_CASE("a system that refuses") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(!refuse_arch_prctl() ? 2 : request_amx() ? 1 : 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) return;  // a system without filters
  CHECK(WEXITSTATUS(status) == 0);
}

#endif
