// SPDX-License-Identifier: MIT
// What users include, with most of what it makes for them.
#include <specula/any.hpp>
#include <specula/make_pipeline.hpp>
#include <specula/pipeline.hpp>
#include <specula/specula.hpp>
