/* Passes over rows, with the same bits on every CPU: sums of fuzzy c-means and k-means, and distances.
 *
 * The only operations are + - * / and square roots, which IEEE 754 rounds in one way, in an order that is fixed below.
 * Compile with -ffp-contract=off: a product and a sum are never one operation.
 *
 * The passes know no Python, so that a test can compile them alone for another CPU. */

#ifndef P2PCLUST_KERNELS_H
#define P2PCLUST_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* These three are part of the bits of the results: another number makes another kernel. */
#define LANES 8 /* chains of additions in each sum */
#define BLOCK 256 /* rows whose sums are added up before they are added to the others */
#define TIE 1e-10 /* squared distances that differ by less, relatively, are compared by direct differences */

/* These change the speed only. */
#define LINE 8 /* doubles in a line of the cache */
#define AHEAD 1024 /* numbers between those that are read and those that are asked for */
#define IN_CACHE 1536 /* numbers of centers that stay in the first cache */

enum fuzzifier { TWO, ONE_AND_A_HALF, THREE };

/* What a pass works with. Rows are used as X - subtracted; centers are given so. */
struct pass {
    size_t n_columns, n_centers;
    size_t panel_stride, distance_stride; /* registers between two panels */
    const double *subtracted, *centers;
    double share; /* of |x|^2 + |v|^2: how small a distance or a difference of distances is looked at closely; with gaps 0 */
    double largest_square; /* of a center */
    double *doubled, *center_squares; /* -2 v, and |v|^2 */
    double *panels, *squares, *distances; /* of a block */
    double *present; /* of rows with gaps: panels of 1 where there is a number and 0 where it is missing; else NULL */
    double *weight_sums, *sums, *costs; /* lane by lane; see folded() */
    double *cell_weights; /* of rows with gaps: as sums, of the weights of the rows that have the column */
    void *memory;
};

/* The results of an assignment to nearest centers; without weights, masses may be absent, and labels always. */
struct cells {
    double *counts, *masses, *sums;
    int64_t *labels;
};

/* The same of rows with gaps: all but the last two are per center and column. Sums and squares, which may be absent, are of
 * the differences from `offsets`; `closest` are the squared distances to the nearest center. */
struct gapped_cells {
    const double *offsets;
    double *counts, *masses, *sums, *squares, *closest;
    int64_t *labels;
};

/* The passes of one instruction set. A pass that is prepared for gaps takes NaN as a missing cell; only `fuzzy` and `gapped`
 * can do that. */
struct passes {
    size_t width; /* doubles in a register */
    void (*fuzzy)(const struct pass *, const double *X, const double *weights, size_t n_rows, enum fuzzifier);
    void (*crisp)(const struct pass *, const double *X, const double *weights, size_t n_rows, const struct cells *);
    void (*gapped)(const struct pass *, const double *X, const double *weights, size_t n_rows, const struct gapped_cells *);
    void (*lower)(const struct pass *, const double *X, size_t n_rows, double *closest);
    void (*moments)(const struct pass *, const double *X, const double *weights, size_t n_rows, const int64_t *labels,
                    double *sums, double *squares);
};

typedef double vector2 __attribute__((vector_size(16)));
typedef int64_t mask2 __attribute__((vector_size(16)));
#define COLUMN2(x, f) ((vector2){x[0][f], x[1][f]})

#if defined(__x86_64__)

#include <immintrin.h>

#define ANY2(mask) (_mm_movemask_pd((__m128d)(mask)) != 0)
#define ANY4(mask) (_mm256_movemask_pd((__m256d)(mask)) != 0)
#define ANY8(mask) (_mm512_test_epi64_mask((__m512i)(mask), (__m512i)(mask)) != 0)

typedef double vector4 __attribute__((vector_size(32)));
typedef int64_t mask4 __attribute__((vector_size(32)));
#define COLUMN4(x, f) ((vector4){x[0][f], x[1][f], x[2][f], x[3][f]})
typedef double vector8 __attribute__((vector_size(64)));
typedef int64_t mask8 __attribute__((vector_size(64)));
#define COLUMN8(x, f) ((vector8){x[0][f], x[1][f], x[2][f], x[3][f], x[4][f], x[5][f], x[6][f], x[7][f]})

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* wide vectors are passed between inlined functions only */
#endif

#define NAME(x) x##_sse2
#define TARGET
#define WIDTH 2
#define VECTOR vector2
#define MASK mask2
#define COLUMN COLUMN2
#define ANY ANY2
#define CENTERS 4
#define PANELS 2
#define SUM_CENTERS 2
#define SUM_COLUMNS 4
#include "loops.h"

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2")))
#define WIDTH 4
#define VECTOR vector4
#define MASK mask4
#define COLUMN COLUMN4
#define ANY ANY4
#define CENTERS 4
#define PANELS 2
#define SUM_CENTERS 2
#define SUM_COLUMNS 4
#include "loops.h"

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))
#define WIDTH 8
#define VECTOR vector8
#define MASK mask8
#define COLUMN COLUMN8
#define ANY ANY8
#define CENTERS 4
#define PANELS 4
#define SUM_CENTERS 4
#define SUM_COLUMNS 4
#include "loops.h"

static const char *const set_names[] = {"sse2", "avx2", "avx512"};
static const struct passes *const sets[] = {&passes_sse2, &passes_avx2, &passes_avx512};

/* How many of these sets this CPU has; each has those before it. */
static int sets_here(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2"))
        return 1;
    const int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    return wide ? 3 : 2;
}

#else

static inline int any2(mask2 mask)
{
    return (mask[0] | mask[1]) != 0;
}
#define ANY2 any2

#define NAME(x) x##_plain
#define TARGET
#define WIDTH 2
#define VECTOR vector2
#define MASK mask2
#define COLUMN COLUMN2
#define ANY ANY2
#define CENTERS 4
#define PANELS 4
#define SUM_CENTERS 4
#define SUM_COLUMNS 4
#include "loops.h"

static const char *const set_names[] = {"plain"};
static const struct passes *const sets[] = {&passes_plain};

static int sets_here(void)
{
    return 1;
}

#endif

/* Prepare a pass; return 0, or -1 without memory. */
static int prepare(struct pass *pass, size_t n_columns, size_t n_centers, const double *subtracted,
                   const double *centers, double share, int gaps)
{
    const size_t cells = n_centers * n_columns;
    /* Panels an odd number of registers apart do not compete for the same lines of a cache. */
    *pass = (struct pass){.n_columns = n_columns, .n_centers = n_centers, .panel_stride = n_columns | 1,
                          .distance_stride = n_centers | 1, .subtracted = subtracted, .centers = centers, .share = share};
    const size_t lengths[] = {BLOCK * pass->panel_stride, BLOCK, BLOCK * pass->distance_stride, LANES * n_centers,
                              LANES * cells, LANES, cells, n_centers, gaps ? BLOCK * pass->panel_stride : 0,
                              gaps ? LANES * cells : 0};
    double **const arrays[] = {&pass->panels, &pass->squares, &pass->distances, &pass->weight_sums, &pass->sums,
                               &pass->costs, &pass->doubled, &pass->center_squares, &pass->present, &pass->cell_weights};
    const size_t n_arrays = sizeof lengths / sizeof *lengths;
    size_t length = LANES;
    for (size_t i = 0; i < n_arrays; i++)
        length += (lengths[i] + LANES - 1) / LANES * LANES;
    pass->memory = calloc(length, sizeof(double));
    if (!pass->memory)
        return -1;
    const uintptr_t line = LANES * sizeof(double);
    double *free_from = (double *)(((uintptr_t)pass->memory + line - 1) / line * line);
    for (size_t i = 0; i < n_arrays; i++) {
        *arrays[i] = free_from;
        free_from += (lengths[i] + LANES - 1) / LANES * LANES;
    }
    if (!gaps)
        pass->present = NULL;
    for (size_t c = 0; c < n_centers; c++) {
        double square = 0.0;
        for (size_t f = 0; f < n_columns; f++) {
            const double v = centers[c * n_columns + f];
            pass->doubled[c * n_columns + f] = -2.0 * v;
            square += v * v;
        }
        pass->center_squares[c] = square;
        pass->largest_square = square > pass->largest_square ? square : pass->largest_square;
    }
    return 0;
}

/* Add up the lanes of `n` sums, and set them to zero. */
static void folded(double *lanes, size_t n, size_t width, double *sums)
{
    for (size_t i = 0; i < n; i++) {
        double own[LANES];
        for (size_t l = 0; l < LANES; l++) {
            double *lane = lanes + (l / width * n + i) * width + l % width;
            own[l] = *lane;
            *lane = 0.0;
        }
        sums[i] = ((own[0] + own[1]) + (own[2] + own[3])) + ((own[4] + own[5]) + (own[6] + own[7]));
    }
}

#endif
