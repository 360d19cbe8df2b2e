// SPDX-License-Identifier: MIT
// The library's pipelines, compiled once for all programs.
#include <specula/make_pipeline.hpp>
