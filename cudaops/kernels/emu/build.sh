#!/bin/sh
# Compiles the kernels for the CPU: emu/build.sh CUDA_INCLUDE OUT.so [-DGAZE_EMU_SM90] sources…
set -e
inc=$1 out=$2
shift 2
dir=$(dirname "$0")
exec g++ -std=c++17 -O1 -g -fPIC -shared -w -fno-strict-aliasing -I "$inc" -include "$dir/emu.h" -x c++ "$@" "$dir/emu.cpp" -o "$out"
