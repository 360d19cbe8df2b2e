// SPDX-License-Identifier: MIT
// Many texts at once: models of many texts and their slots, the driver, rounds for a loop of one's own, and
// the budget that they draft from.
#pragma once

#include "specula/batch/batch_speculator.hpp"
#include "specula/batch/run_pass.hpp"
#include "specula/batch/run_round.hpp"
#include "specula/batch/text_request.hpp"
#include "specula/cost/batch_budget.hpp"
#include "specula/model/batched.hpp"
