# SPDX-License-Identifier: Apache-2.0
# One warning set and one way to make a folder's target, so that each folder's
# list says only what it holds and whom it may include.

add_library(gs_flags INTERFACE)
target_compile_definitions(gs_flags INTERFACE _GNU_SOURCE)
target_compile_options(gs_flags INTERFACE
    -Wall -Wextra $<$<NOT:$<BOOL:${GS_FUZZ}>>:-Werror> -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wpointer-arith -Wvla -Wno-unused-parameter $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>
    $<$<C_COMPILER_ID:Clang>:-Wno-gnu-variable-sized-type-not-at-end> $<$<C_COMPILER_ID:Clang>:-Wno-unknown-pragmas> -fno-math-errno -fno-common
    # Results must not depend on which instruction set a machine offers.
    -ffp-contract=off)

# gs_folder(NAME SOURCES… ): a static library gs_NAME whose headers are found
# as "NAME/file.h" by whoever links it, and by no one else.
function(gs_folder name)
    add_library(gs_${name} STATIC ${ARGN})
    target_include_directories(gs_${name}
        INTERFACE ${CMAKE_BINARY_DIR}/inc/${name})
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/inc/${name})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/inc/${name}/${name}
         SYMBOLIC)
    target_include_directories(gs_${name} PRIVATE ${CMAKE_BINARY_DIR}/inc/${name})
    target_link_libraries(gs_${name} PRIVATE gs_flags)
endfunction()
