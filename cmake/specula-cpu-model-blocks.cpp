// SPDX-License-Identifier: MIT
#include <specula/cpu/compile_block_products.hpp>
