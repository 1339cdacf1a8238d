/* The passes of kernels.h for Python: arrays come and go through the buffer protocol, without NumPy's headers.
 *
 * p2pclust/clustering/kernels.py is the only caller; it sees to types and contiguity. Here only lengths are checked, so
 * that no call can read or write outside its arrays. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"

/* Rows, and the centers that a pass compares them with. */
struct given {
    Py_buffer X, subtracted, centers, weights;
    size_t n_rows, part_rows;
    const double *row_weights; /* NULL without weights */
    const struct passes *passes;
};

static void release(Py_buffer *const *buffers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        PyBuffer_Release(buffers[i]);
}

static int holds(const Py_buffer *buffer, size_t n, const char *name)
{
    if (buffer->buf && (size_t)buffer->len == n * sizeof(double))
        return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes, expected %zu", name, buffer->len, n * sizeof(double));
    return 0;
}

/* Check what all passes are given, and prepare the pass; return 0, or -1 with an exception. */
static int begin(struct given *given, struct pass *pass, size_t n_parts, double share, int set, int gaps)
{
    const size_t row = (size_t)given->subtracted.len;
    if (!row || row % sizeof(double) || !given->centers.len || given->centers.len % (Py_ssize_t)row) {
        PyErr_SetString(PyExc_ValueError, "centers: expected one number per column of the rows");
        return -1;
    }
    if (set < 0 || set >= sets_here()) {
        PyErr_SetString(PyExc_ValueError, "this CPU does not have that instruction set");
        return -1;
    }
    const size_t n_columns = row / sizeof(double), n_centers = (size_t)given->centers.len / row;
    given->n_rows = (size_t)given->X.len / row;
    given->row_weights = given->weights.len ? given->weights.buf : NULL;
    given->passes = sets[set];
    if (!holds(&given->X, given->n_rows * n_columns, "X") ||
        (given->row_weights && !holds(&given->weights, given->n_rows, "weights")))
        return -1;
    if (!given->part_rows || (given->n_rows + given->part_rows - 1) / given->part_rows != n_parts) {
        PyErr_SetString(PyExc_ValueError, "another number of parts");
        return -1;
    }
    if (prepare(pass, n_columns, n_centers, given->subtracted.buf, given->centers.buf, gaps ? 0.0 : share, gaps)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* fuzzy(X, subtracted, centers, weights, part_rows, n_parts, fuzzifier, share, set, weight_sums, sums, costs, cell_weights)
 *
 * `cell_weights` is empty if no cell is missing; otherwise NaN is a missing cell. */
static PyObject *fuzzy(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct given given = {0};
    struct pass pass = {0};
    Py_buffer weight_sums = {0}, sums = {0}, costs = {0}, cell_weights = {0};
    Py_ssize_t part_rows, n_parts;
    int which, set;
    double share;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*nnidiw*w*w*w*", &given.X, &given.subtracted, &given.centers, &given.weights,
                          &part_rows, &n_parts, &which, &share, &set, &weight_sums, &sums, &costs, &cell_weights))
        return NULL;
    Py_buffer *const buffers[] = {&given.X, &given.subtracted, &given.centers, &given.weights,
                                  &weight_sums, &sums, &costs, &cell_weights};
    given.part_rows = part_rows > 0 ? (size_t)part_rows : 0;
    int good = !begin(&given, &pass, (size_t)n_parts, share, set, cell_weights.len > 0);
    const size_t C = pass.n_centers, cells = C * pass.n_columns;
    good = good && holds(&weight_sums, (size_t)n_parts * C, "weight_sums") &&
           holds(&sums, (size_t)n_parts * cells, "sums") && holds(&costs, (size_t)n_parts, "costs") &&
           (!cell_weights.len || holds(&cell_weights, (size_t)n_parts * cells, "cell_weights"));
    if (good && (which < TWO || which > THREE)) {
        PyErr_SetString(PyExc_ValueError, "fuzzifier: expected 0, 1 or 2");
        good = 0;
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t part = 0; part < (size_t)n_parts; part++) {
            const size_t start = part * given.part_rows, left = given.n_rows - start;
            given.passes->fuzzy(&pass, (const double *)given.X.buf + start * pass.n_columns,
                                given.row_weights ? given.row_weights + start : NULL,
                                left < given.part_rows ? left : given.part_rows, (enum fuzzifier)which);
            folded(pass.weight_sums, C, given.passes->width, (double *)weight_sums.buf + part * C);
            folded(pass.sums, cells, given.passes->width, (double *)sums.buf + part * cells);
            if (pass.present)
                folded(pass.cell_weights, cells, given.passes->width, (double *)cell_weights.buf + part * cells);
            folded(pass.costs, 1, given.passes->width, (double *)costs.buf + part);
        }
        Py_END_ALLOW_THREADS
    }
    free(pass.memory);
    release(buffers, sizeof buffers / sizeof *buffers);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* crisp(X, subtracted, centers, weights, part_rows, n_parts, noise, set, counts, masses, sums, labels)
 *
 * `counts`, `masses` (empty without weights) and `sums` are added to and must be zero; `labels` may be empty. */
static PyObject *crisp(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct given given = {0};
    struct pass pass = {0};
    Py_buffer counts = {0}, masses = {0}, sums = {0}, labels = {0};
    Py_ssize_t part_rows, n_parts;
    int set;
    double noise;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*nndiw*w*w*w*", &given.X, &given.subtracted, &given.centers, &given.weights,
                          &part_rows, &n_parts, &noise, &set, &counts, &masses, &sums, &labels))
        return NULL;
    Py_buffer *const buffers[] = {&given.X, &given.subtracted, &given.centers, &given.weights,
                                  &counts, &masses, &sums, &labels};
    given.part_rows = part_rows > 0 ? (size_t)part_rows : 0;
    int good = !begin(&given, &pass, (size_t)n_parts, noise, set, 0);
    const size_t C = pass.n_centers, cells = C * pass.n_columns;
    good = good && holds(&counts, (size_t)n_parts * C, "counts") && holds(&sums, (size_t)n_parts * cells, "sums") &&
           (!given.row_weights || holds(&masses, (size_t)n_parts * C, "masses")) &&
           (!labels.len || holds(&labels, given.n_rows, "labels"));
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t part = 0; part < (size_t)n_parts; part++) {
            const size_t start = part * given.part_rows, left = given.n_rows - start;
            const struct cells found = {
                (double *)counts.buf + part * C, given.row_weights ? (double *)masses.buf + part * C : NULL,
                (double *)sums.buf + part * cells, labels.len ? (int64_t *)labels.buf + start : NULL};
            given.passes->crisp(&pass, (const double *)given.X.buf + start * pass.n_columns,
                                given.row_weights ? given.row_weights + start : NULL,
                                left < given.part_rows ? left : given.part_rows, &found);
        }
        Py_END_ALLOW_THREADS
    }
    free(pass.memory);
    release(buffers, sizeof buffers / sizeof *buffers);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* moments(X, subtracted, centers, weights, part_rows, n_parts, set, labels, sums, squares)
 *
 * `sums` and `squares` are added to and must be zero. */
static PyObject *moments(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct given given = {0};
    struct pass pass = {0};
    Py_buffer labels = {0}, sums = {0}, squares = {0};
    Py_ssize_t part_rows, n_parts;
    int set;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*nniy*w*w*", &given.X, &given.subtracted, &given.centers, &given.weights,
                          &part_rows, &n_parts, &set, &labels, &sums, &squares))
        return NULL;
    Py_buffer *const buffers[] = {&given.X, &given.subtracted, &given.centers, &given.weights, &labels, &sums, &squares};
    given.part_rows = part_rows > 0 ? (size_t)part_rows : 0;
    int good = !begin(&given, &pass, (size_t)n_parts, 0.0, set, 0);
    const size_t cells = pass.n_centers * pass.n_columns;
    good = good && holds(&labels, given.n_rows, "labels") && holds(&sums, (size_t)n_parts * cells, "sums") &&
           holds(&squares, (size_t)n_parts * cells, "squares");
    for (size_t r = 0; good && r < given.n_rows; r++)
        good = ((int64_t *)labels.buf)[r] >= 0 && (size_t)((int64_t *)labels.buf)[r] < pass.n_centers;
    if (!good && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "labels: expected indices of centers");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t part = 0; part < (size_t)n_parts; part++) {
            const size_t start = part * given.part_rows, left = given.n_rows - start;
            given.passes->moments(&pass, (const double *)given.X.buf + start * pass.n_columns,
                                  given.row_weights ? given.row_weights + start : NULL,
                                  left < given.part_rows ? left : given.part_rows, (const int64_t *)labels.buf + start,
                                  (double *)sums.buf + part * cells, (double *)squares.buf + part * cells);
        }
        Py_END_ALLOW_THREADS
    }
    free(pass.memory);
    release(buffers, sizeof buffers / sizeof *buffers);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* gapped(X, subtracted, centers, offsets, weights, part_rows, n_parts, set, counts, masses, sums, squares, labels, closest)
 *
 * NaN in X is a missing cell. `counts`, `masses` (empty without weights), `sums` and `squares` (may be empty) are added to
 * and must be zero. */
static PyObject *gapped(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct given given = {0};
    struct pass pass = {0};
    Py_buffer offsets = {0}, counts = {0}, masses = {0}, sums = {0}, squares = {0}, labels = {0}, closest = {0};
    Py_ssize_t part_rows, n_parts;
    int set;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*nniw*w*w*w*w*w*", &given.X, &given.subtracted, &given.centers, &offsets,
                          &given.weights, &part_rows, &n_parts, &set, &counts, &masses, &sums, &squares, &labels, &closest))
        return NULL;
    Py_buffer *const buffers[] = {&given.X, &given.subtracted, &given.centers, &offsets, &given.weights,
                                  &counts, &masses, &sums, &squares, &labels, &closest};
    given.part_rows = part_rows > 0 ? (size_t)part_rows : 0;
    int good = !begin(&given, &pass, (size_t)n_parts, 0.0, set, 1);
    const size_t cells = pass.n_centers * pass.n_columns, all = (size_t)n_parts * cells;
    good = good && holds(&offsets, cells, "offsets") && holds(&counts, all, "counts") && holds(&sums, all, "sums") &&
           (!squares.len || holds(&squares, all, "squares")) && (!given.row_weights || holds(&masses, all, "masses")) &&
           holds(&labels, given.n_rows, "labels") && holds(&closest, given.n_rows, "closest");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t part = 0; part < (size_t)n_parts; part++) {
            const size_t start = part * given.part_rows, left = given.n_rows - start, first = part * cells;
            const struct gapped_cells found = {
                offsets.buf, (double *)counts.buf + first, given.row_weights ? (double *)masses.buf + first : NULL,
                (double *)sums.buf + first, squares.len ? (double *)squares.buf + first : NULL, (double *)closest.buf + start,
                (int64_t *)labels.buf + start};
            given.passes->gapped(&pass, (const double *)given.X.buf + start * pass.n_columns,
                                 given.row_weights ? given.row_weights + start : NULL,
                                 left < given.part_rows ? left : given.part_rows, &found);
        }
        Py_END_ALLOW_THREADS
    }
    free(pass.memory);
    release(buffers, sizeof buffers / sizeof *buffers);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* lower(X, subtracted, centers, set, closest) */
static PyObject *lower(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct given given = {0};
    struct pass pass = {0};
    Py_buffer closest = {0};
    int set;
    if (!PyArg_ParseTuple(arguments, "y*y*y*iw*", &given.X, &given.subtracted, &given.centers, &set, &closest))
        return NULL;
    Py_buffer *const buffers[] = {&given.X, &given.subtracted, &given.centers, &closest};
    given.part_rows = (size_t)given.X.len + 1;
    int good = !begin(&given, &pass, given.X.len ? 1 : 0, 0.0, set, 0) && holds(&closest, given.n_rows, "closest");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        given.passes->lower(&pass, given.X.buf, given.n_rows, closest.buf);
        Py_END_ALLOW_THREADS
    }
    free(pass.memory);
    release(buffers, sizeof buffers / sizeof *buffers);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* instruction_sets() -> the names of the sets that this CPU has, the fastest last */
static PyObject *instruction_sets(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    const int n_sets = sets_here();
    PyObject *names = PyTuple_New(n_sets);
    for (int i = 0; names && i < n_sets; i++) {
        PyObject *name = PyUnicode_FromString(set_names[i]);
        if (!name || PyTuple_SetItem(names, i, name)) {
            Py_DECREF(names);
            return NULL;
        }
    }
    return names;
}

static PyMethodDef methods[] = {
    {"fuzzy", fuzzy, METH_VARARGS, "Sums of fuzzy c-means, part by part."},
    {"crisp", crisp, METH_VARARGS, "Sums of k-means, part by part, and labels."},
    {"gapped", gapped, METH_VARARGS, "Sums of k-means over rows with missing cells, part by part, and labels."},
    {"moments", moments, METH_VARARGS, "Sums of differences from centers and of their squares, part by part."},
    {"lower", lower, METH_VARARGS, "Squared distances to the nearest center, by direct differences."},
    {"instruction_sets", instruction_sets, METH_NOARGS, "The instruction sets of this CPU, the fastest last."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_kernels", .m_doc = "See p2pclust.clustering.kernels.",
    .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&definition);
}
