import pytest

from facade.data.clusters import cluster_names


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([[30, 2]], ["majority", "minority"]),
        ([[2, 30]], ["minority", "majority"]),
        ([[16, 16]], ["cluster 0", "cluster 1"]),
        ([[16, 16], [30, 2]], ["majority", "minority"]),
        ([[2, 30], [30, 2]], ["cluster 0", "cluster 1"]),
        ([[20, 10, 2]], ["cluster 0", "cluster 1", "cluster 2"]),
        ([[8]], ["cluster 0"]),
    ],
)
def test_clusters_are_majority_and_minority_where_all_experiments_agree(sizes, names):
    assert cluster_names(sizes, len(names)) == names
