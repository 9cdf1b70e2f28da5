package org.apache.hadoop.hive.metastore.txn;

import org.apache.hadoop.hive.metastore.api.CheckLockRequest;
import org.apache.hadoop.hive.metastore.api.LockResponse;
import org.apache.hadoop.hive.metastore.api.MetaException;
import org.apache.hadoop.hive.metastore.api.NoSuchLockException;
import org.apache.hadoop.hive.metastore.api.NoSuchTxnException;
import org.apache.hadoop.hive.metastore.api.TxnAbortedException;

/**
 * The metastore's own store of transactions, which takes its two locks in one order.
 *
 * <p>On Derby, which no real server uses, a commit takes Hive's own lock of the database first and then rows of TXNS. A
 * check of a waiting lock does the reverse, so the two wait for each other for ever. The class is in Hive's package,
 * because the class that it extends is visible only there.
 */
public final class OrderedTxnHandler extends CompactionTxnHandler {
  @Override
  public LockResponse checkLock(CheckLockRequest request)
      throws NoSuchTxnException, NoSuchLockException, TxnAbortedException, MetaException {
    dbProduct.lockInternal();
    try {
      return super.checkLock(request);
    } finally {
      dbProduct.unlockInternal();
    }
  }
}
