// SPDX-License-Identifier: MIT
// Fuzzing driver: runs a libFuzzer target without libFuzzer, with the same inputs on
// every machine and compiler.
//
//   fuzz_x [--iterations N] [--max-seconds S] [--seed S] [FILE | FOLDER]...
//
// Files are run as they are and then mutated; with --iterations 0 they are only replayed. A target
// may supply its own seeds by the hook below. An input that crashes is written to fuzz-failure.bin
// in the working directory.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Optional: writes seed number `index` into `data` and returns its size; 0 when there are no more.
extern "C" __attribute__((weak)) std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data,
                                                               std::size_t capacity);

/// Defined under the sanitizers, whose reports end the process without a signal.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

constexpr std::size_t kMaxSize = 4096;
using Input = std::vector<std::uint8_t>;

class XorShift {
 public:
  explicit XorShift(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((next() >> 16) % n); }

 private:
  std::uint64_t state_;
};

Input current;               // the input that runs now, for the crash report
unsigned long executed = 0;  // the number of inputs before it

void report_crash() {
  static bool reported = false;
  if (reported) return;
  reported = true;
  std::fprintf(stderr, "fuzz: input %lu (%zu bytes) failed; written to fuzz-failure.bin\n", executed,
               current.size());
  if (std::FILE* file = std::fopen("fuzz-failure.bin", "wb")) {
    std::fwrite(current.data(), 1, current.size(), file);
    std::fclose(file);
  }
}

extern "C" void on_signal(int signal) {
  report_crash();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Input& input) {
  current = input;
  // An exact copy on the heap, so that the address sanitizer detects a read past the end.
  const std::vector<std::uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  ++executed;
}

void mutate(Input& input, const std::vector<Input>& seeds, XorShift& random) {
  static constexpr std::uint8_t kTelling[] = {0,   1,   0x7F, 0x80, 0xFF, '"', '{', '}',
                                              '[', ']', ',',  ':',  '-',  '.', '9'};
  switch (random.below(8)) {
    case 0:  // flip a bit
      if (!input.empty())
        input[random.below(input.size())] ^= static_cast<std::uint8_t>(1u << random.below(8));
      break;
    case 1:  // set a byte
      if (!input.empty()) input[random.below(input.size())] = static_cast<std::uint8_t>(random.next() >> 32);
      break;
    case 2:  // set an interesting byte
      if (!input.empty()) input[random.below(input.size())] = kTelling[random.below(std::size(kTelling))];
      break;
    case 3:  // insert a few bytes
      for (std::size_t n = 1 + random.below(8); n > 0 && input.size() < kMaxSize; --n)
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(random.below(input.size() + 1)),
                     static_cast<std::uint8_t>(random.next() >> 32));
      break;
    case 4: {  // remove a range
      if (input.empty()) break;
      const std::size_t from = random.below(input.size());
      const std::size_t n = 1 + random.below(input.size() - from);
      input.erase(input.begin() + static_cast<std::ptrdiff_t>(from),
                  input.begin() + static_cast<std::ptrdiff_t>(from + n));
      break;
    }
    case 5: {  // add a small number to a little-endian word
      if (input.size() < 4) break;
      const std::size_t at = random.below(input.size() - 3);
      std::uint32_t word;
      std::memcpy(&word, &input[at], 4);
      word += static_cast<std::uint32_t>(random.below(33)) - 16u;
      std::memcpy(&input[at], &word, 4);
      break;
    }
    case 6: {  // continue as another seed does
      const Input& other = seeds[random.below(seeds.size())];
      const std::size_t at = random.below(input.size() + 1);
      input.resize(at);
      if (at < other.size())
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
      break;
    }
    default: {  // repeat a piece
      if (input.empty()) break;
      const std::size_t from = random.below(input.size());
      const std::size_t n = 1 + random.below(input.size() - from);
      const Input piece(input.begin() + static_cast<std::ptrdiff_t>(from),
                        input.begin() + static_cast<std::ptrdiff_t>(from + n));
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(random.below(input.size() + 1)), piece.begin(),
                   piece.end());
      break;
    }
  }
  if (input.size() > kMaxSize) input.resize(kMaxSize);
}

Input read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

std::vector<Input> gather_seeds(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::filesystem::path> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path)) inside.push_back(entry.path());
    std::sort(inside.begin(), inside.end());  // a folder's order differs from machine to machine
    files.insert(files.end(), inside.begin(), inside.end());
  }
  std::vector<Input> seeds;
  for (const auto& file : files) seeds.push_back(read(file));
  if (specula_fuzz_seed != nullptr) {
    Input buffer(kMaxSize);
    for (std::uint32_t i = 0; const std::size_t size = specula_fuzz_seed(i, buffer.data(), buffer.size());
         ++i)
      seeds.emplace_back(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size));
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long iterations = 20000;
  double max_seconds = 1e9;
  std::uint64_t seed = 1;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) {
        std::fprintf(stderr, "fuzz: %s needs a value\n", argv[i]);
        std::exit(2);
      }
      return argv[++i];
    };
    if (argument == "--iterations") {
      iterations = std::strtoul(value(), nullptr, 10);
    } else if (argument == "--max-seconds") {
      max_seconds = std::strtod(value(), nullptr);
    } else if (argument == "--seed") {
      seed = std::strtoull(value(), nullptr, 10);
    } else {
      paths.emplace_back(argument);
    }
  }

  std::signal(SIGABRT, on_signal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(report_crash);  // the sanitizer handles the other signals
  } else {
    for (const int signal : {SIGSEGV, SIGFPE, SIGILL, SIGBUS}) std::signal(signal, on_signal);
  }

  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<Input> seeds = gather_seeds(paths);
  for (const Input& input : seeds) run(input);
  if (seeds.empty()) seeds.emplace_back();

  XorShift random(seed);
  const unsigned long last = executed + iterations;
  while (executed < last && seconds() < max_seconds) {
    Input input = seeds[random.below(seeds.size())];
    if (random.below(16) == 0) {  // sometimes random bytes instead
      input.resize(random.below(257));
      for (auto& byte : input) byte = static_cast<std::uint8_t>(random.next() >> 32);
    }
    for (std::size_t n = 1 + random.below(6); n > 0; --n) mutate(input, seeds, random);
    run(input);
  }
  std::printf("fuzz: %lu inputs in %.1f s\n", executed, seconds());
}
