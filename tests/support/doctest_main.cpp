// SPDX-License-Identifier: MIT
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>

#include "skip.hpp"

namespace {

int checks = 0;
unsigned cases = 1;  // that the options select

struct CountChecks : doctest::IReporter {
  explicit CountChecks(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& run) override {
    checks = run.numAsserts;
    cases = run.numTestCasesPassingFilters;
  }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("count_checks", 1, CountChecks);

}  // namespace

int main(int argc, char** argv) {
  const int failed = doctest::Context(argc, argv).run();
  if (failed == 0 && cases == 0) {
    std::cerr << "no test case has been selected\n";
    return 1;
  }
  constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE
  return failed == 0 && checks == 0 && specula_test::skipped_cases > 0 ? kSkipped : failed;
}
