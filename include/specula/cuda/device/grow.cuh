// Draft tree growth on the device, without a round trip to the host.
#pragma once

#include "specula/cuda/device/grow_cape.cuh"
#include "specula/cuda/device/grow_dynamic_tree.cuh"
#include "specula/cuda/device/tree_links.cuh"
