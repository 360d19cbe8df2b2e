// SPDX-License-Identifier: MIT
// make_pipeline(): pipelines named by a text at run time. Most files of a program include this. One file of
// the program also includes make_pipeline.hpp, which compiles them.
#pragma once

#include "specula/runtime/factory.hpp"
#include "specula/runtime/models.hpp"
#include "specula/runtime/named_models.hpp"
#include "specula/runtime/run_time_pipeline.hpp"
#include "specula/runtime/spec.hpp"
