// What <specula/cuda/primitives/group.cuh> includes for the device; a host needs none of it.
#pragma once
