// SPDX-License-Identifier: MIT
// Draft tree growth on the device, without a round trip to the host.
#pragma once

#include "specula/cuda/api/grow_cape.cuh"
#include "specula/cuda/api/grow_dynamic_tree.cuh"
#include "specula/cuda/api/select_nodes.cuh"
#include "specula/cuda/api/tree_links.cuh"
