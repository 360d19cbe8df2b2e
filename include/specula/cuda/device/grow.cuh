// Proposals grown on the device, without a round trip to the host.
#pragma once

#include "grow_cape.cuh"
#include "grow_dynamic_tree.cuh"
#include "tree_links.cuh"
