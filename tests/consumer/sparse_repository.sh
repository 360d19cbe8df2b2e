#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: sparse_repository.sh SOURCE FOLDER CLIENT
# Makes FOLDER a repository of these sources with a file as large as the models', from which clients may clone in part.
# What an earlier run left in CLIENT goes: git does not clone into a folder that is there.
set -euo pipefail
source=$1 folder=$2 client=$3
if ! command -v git >/dev/null; then
  echo 'SKIP: no git'
  exit 77
fi
rm -rf "$folder" "$client"
mkdir -p "$folder"/{examples,tests,docs}
cp -r "$source"/{CMakeLists.txt,LICENSE,README.md,include,cmake} "$folder"
head -c 2000000 /dev/urandom >"$folder/examples/model"
cp "$source/README.md" "$folder/tests/x"
cp "$source/README.md" "$folder/docs/x"
cd "$folder"
git init --quiet --initial-branch=main
git config uploadpack.allowFilter true
git add --all
git -c user.name=test -c user.email=test@localhost commit --quiet --message=test
