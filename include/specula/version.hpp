// SPDX-License-Identifier: MIT
#pragma once

// The only definition of the version: CMake reads these three lines.
#define SPECULA_VERSION_MAJOR 0
#define SPECULA_VERSION_MINOR 1
#define SPECULA_VERSION_PATCH 0
