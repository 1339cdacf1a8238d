/* Prints digests of what the passes of kernels.h return on made-up rows, for each instruction set of this CPU: of rows
 * without gaps, and of rows with gaps. */

#include <stdio.h>

#include "kernels.h"

static uint64_t state = 1;

/* A number with all 53 bits, from -4 to 4. */
static double number(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(state >> 11) * 0x1p-50 - 4.0;
}

static double *numbers(size_t n)
{
    double *made = malloc(n * sizeof *made);
    for (size_t i = 0; i < n; i++)
        made[i] = number();
    return made;
}

static uint64_t digest(uint64_t before, const void *data, size_t n_bytes)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n_bytes; i++)
        before = (before ^ bytes[i]) * 1099511628211u;
    return before;
}

/* All passes over n rows of F columns, with C centers, three of which are rows and two of which coincide. */
static uint64_t passes_over(const struct passes *passes, uint64_t before, size_t n, size_t F, size_t C)
{
    double *X = numbers(n * F), *subtracted = numbers(F), *weights = numbers(n), *centers = numbers(C * F);
    for (size_t f = 0; f < F; f++)
        for (size_t c = 0; c < C; c += 2)
            centers[c * F + f] = X[(c / 3 * 7 % n) * F + f] - subtracted[f];
    double *weight_sums = malloc(C * sizeof(double)), *sums = malloc(C * F * sizeof(double)), *closest = malloc(n * sizeof(double));
    int64_t *labels = malloc(n * sizeof *labels);
    for (int weighted = 0; weighted < 2; weighted++) {
        struct pass pass;
        for (int fuzzifier = TWO; fuzzifier <= THREE; fuzzifier++) {
            if (prepare(&pass, F, C, subtracted, centers, 1e-3, 0))
                exit(1);
            passes->fuzzy(&pass, X, weighted ? weights : NULL, n, fuzzifier);
            folded(pass.weight_sums, C, passes->width, weight_sums);
            folded(pass.sums, C * F, passes->width, sums);
            double cost;
            folded(pass.costs, 1, passes->width, &cost);
            free(pass.memory);
            before = digest(digest(before, weight_sums, C * sizeof(double)), sums, C * F * sizeof(double));
            before = digest(before, &cost, sizeof cost);
        }
        if (prepare(&pass, F, C, subtracted, centers, 1e-14, 0))
            exit(1);
        double *counts = calloc(2 * C, sizeof(double));
        memset(sums, 0, C * F * sizeof(double));
        const struct cells found = {counts, counts + C, sums, labels};
        passes->crisp(&pass, X, weighted ? weights : NULL, n, &found);
        for (size_t r = 0; r < n; r++)
            closest[r] = INFINITY;
        passes->lower(&pass, X, n, closest);
        double *both = calloc(2 * C * F, sizeof(double));
        passes->moments(&pass, X, weighted ? weights : NULL, n, labels, both, both + C * F);
        before = digest(before, both, 2 * C * F * sizeof(double));
        free(both);
        free(pass.memory);
        before = digest(digest(before, counts, 2 * C * sizeof(double)), sums, C * F * sizeof(double));
        before = digest(digest(before, labels, n * sizeof *labels), closest, n * sizeof(double));
        free(counts);
    }
    free(X), free(subtracted), free(weights), free(centers), free(weight_sums), free(sums), free(closest), free(labels);
    return before;
}

/* All passes over such rows in which about a third of the cells are missing. */
static uint64_t gapped_passes_over(const struct passes *passes, uint64_t before, size_t n, size_t F, size_t C)
{
    double *X = numbers(n * F), *subtracted = numbers(F), *weights = numbers(n), *centers = numbers(C * F);
    for (size_t i = 0; i < n * F; i++)
        X[i] = X[i] > 1.3 ? NAN : X[i];
    const size_t cells = C * F;
    double *results = malloc((C + 4 * cells + n) * sizeof(double));
    int64_t *labels = malloc(n * sizeof *labels);
    for (int weighted = 0; weighted < 2; weighted++) {
        struct pass pass;
        for (int fuzzifier = TWO; fuzzifier <= THREE; fuzzifier++) {
            if (prepare(&pass, F, C, subtracted, centers, 0.0, 1))
                exit(1);
            passes->fuzzy(&pass, X, weighted ? weights : NULL, n, fuzzifier);
            folded(pass.weight_sums, C, passes->width, results);
            folded(pass.sums, cells, passes->width, results + C);
            folded(pass.cell_weights, cells, passes->width, results + C + cells);
            folded(pass.costs, 1, passes->width, results + C + 2 * cells);
            free(pass.memory);
            before = digest(before, results, (C + 2 * cells + 1) * sizeof(double));
        }
        if (prepare(&pass, F, C, subtracted, centers, 0.0, 1))
            exit(1);
        memset(results, 0, (C + 4 * cells + n) * sizeof(double));
        const struct gapped_cells found = {centers, results, results + cells, results + 2 * cells, results + 3 * cells,
                                           results + 4 * cells, labels};
        passes->gapped(&pass, X, weighted ? weights : NULL, n, &found);
        free(pass.memory);
        before = digest(digest(before, results, (4 * cells + n) * sizeof(double)), labels, n * sizeof *labels);
    }
    free(X), free(subtracted), free(weights), free(centers), free(results), free(labels);
    return before;
}

int main(void)
{
    static const size_t shapes[][3] = {{1, 1, 1}, {7, 3, 2}, {8, 4, 3}, {255, 2, 15}, {256, 16, 10}, {257, 5, 7},
                                       {1000, 64, 50}, {3000, 13, 4}, {515, 100, 33}};
    for (int set = 0; set < sets_here(); set++) {
        uint64_t found = 14695981039346656037u, gapped = found;
        state = 1;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            found = passes_over(sets[set], found, shapes[i][0], shapes[i][1], shapes[i][2]);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            gapped = gapped_passes_over(sets[set], gapped, shapes[i][0], shapes[i][1], shapes[i][2]);
        printf("%s %016llx %016llx\n", set_names[set], (unsigned long long)found, (unsigned long long)gapped);
    }
    return 0;
}
