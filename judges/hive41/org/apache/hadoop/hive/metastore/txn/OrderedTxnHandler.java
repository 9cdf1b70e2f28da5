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
 * <p>On Derby, which no server uses, a commit takes Hive's own lock of the database first and rows of TXNS then, and a look
 * at a waiting lock does the reverse: the two wait for each other for ever. It lies in Hive's package to extend what is
 * visible there only.
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
