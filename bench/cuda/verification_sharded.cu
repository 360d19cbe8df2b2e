// SPDX-License-Identifier: MIT
// Verification results from 1, 2, 3 and 8 shards of the vocabulary against the CPU's, and against each other
// to the bit.
#include <algorithm>

#include "device_cases.cuh"
#include "sharded.cuh"
#include "tally.cuh"

namespace specula_bench {

void check_sharded(const Options& options, const Device&, const Stream& stream, Json& json, Report& report) {
  using device::BFloat16;
  for (const Rule rule : {Rule::greedy, Rule::sample_and_match, Rule::rejection}) {
    Tally tally, same;
    const int batches = options.tiny ? 1 : 24;
    for (int i = 0; i < batches; ++i) {
      CaseShape shape;
      shape.vocab = options.tiny ? 1100 : i % 3 == 0 ? 40 : i % 3 == 1 ? 600 : 9000;
      shape.trees = options.tiny ? 2 : 40;
      if (shape.vocab > 2000) shape.nodes = 8;
      shape.only_chosen = true;
      shape.only_temperature = true;
      const CaseBatch<BFloat16> batch =
          make_cases<BFloat16>(rule, shape, options.seed * 409 + static_cast<std::uint64_t>(i));
      DeviceCases<BFloat16> cases;
      cases.upload(batch);
      const int sequences = static_cast<int>(batch.position.size()), nodes = batch.begin.back();
      const device::VerifyCapacity capacity{sequences, batch.max_nodes, batch.width - 1, batch.vocab};
      HostResults first;
      for (const int wanted : {1, 2, 3, 8}) {
        const int tiles = (batch.vocab + 511) / 512, each = (tiles + wanted - 1) / wanted;
        const int shards = (tiles + each - 1) / each;
        DeviceArray<unsigned char> partials(sharded_bytes(nodes, shards, each));
        DeviceArray<float> child_logits(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(shards));
        partials.fill_bytes(kPoison), child_logits.fill_bytes(kPoison);
        DeviceResults results(sequences, batch.width);
        SPECULA_CHECK(verify_sharded<BFloat16>(rule, capacity, nodes, shards, each, cases.trees(),
                                               cases.target(), results.args(), partials.data(),
                                               child_logits.data(), stream));
        stream.wait();
        const HostResults got = results.download();
        const std::string name = "batch " + std::to_string(i) + ", " + std::to_string(shards) + " shards";
        if (wanted == 1)
          first = got;
        else
          same.add(got == first, 1, name);
        for (std::size_t b = 0; b < batch.position.size(); ++b) {
          const std::string wrong = difference(batch, got, b, batch.width);
          tally.add(wrong.empty(), batch.margin[b], name + ", sequence " + std::to_string(b) + ": " + wrong);
        }
      }
    }
    write(json, report, std::string(name_of(rule)) + ", sharded", tally);
    write(json, report, std::string(name_of(rule)) + ", any number of shards, same bits", same);
  }
}

}  // namespace specula_bench
