// SPDX-License-Identifier: MIT
// make_pipeline(): pipelines named by a text at run time. Most files of a program include this. One file of
// the program also includes make_pipeline.hpp, which compiles them.
#pragma once

#include "specula/pipeline/factory.hpp"
#include "specula/pipeline/models.hpp"
#include "specula/pipeline/named_models.hpp"
#include "specula/pipeline/run_time_pipeline.hpp"
#include "specula/pipeline/spec.hpp"
